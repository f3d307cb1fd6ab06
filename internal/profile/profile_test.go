package profile_test

import (
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

func TestNamesOfConstants(t *testing.T) {
	for k := profile.KindUnknown; k <= profile.KindJIT; k++ {
		if got := profile.ParseKind(k.String()); got != k {
			t.Errorf("%s came back as %s", k, got)
		}
	}
	for c := profile.ClassUnknown; c <= profile.ClassKernel; c++ {
		if got := profile.ParseClass(c.String()); got != c {
			t.Errorf("%s came back as %s", c, got)
		}
	}
	for e := profile.EndUnknown; e <= profile.EndLost; e++ {
		if got := profile.ParseEnd(e.String()); got != e {
			t.Errorf("%s came back as %s", e, got)
		}
	}
	if profile.ParseKind("?") != 0 || profile.ParseClass("?") != 0 || profile.ParseEnd("?") != profile.EndOther || profile.ParseEnd("") != 0 {
		t.Error("an unknown name must be unknown")
	}
	if profile.Kind(200).String() != "other (200)" || profile.Class(200).String() != "other (200)" || profile.End(200).String() != "other (200)" {
		t.Error("a value without a name must show its number")
	}
}

func TestFrameKey(t *testing.T) {
	base := profile.Frame{Function: "f", File: "/build/1/shop/a.c", Line: 3, Mapping: "/opt/v1/shop", Kind: profile.KindNative}
	tests := []struct {
		name   string
		change func(f *profile.Frame)
		same   bool
	}{
		{"another build's folder and line", func(f *profile.Frame) { f.File, f.Line = "/build/2/shop/a.c", 9 }, true},
		{"another binary of the same source", func(f *profile.Frame) { f.Mapping = "/opt/v2/shop" }, true},
		{"another file", func(f *profile.Frame) { f.File = "/build/1/shop/b.c" }, false},
		{"another kind", func(f *profile.Frame) { f.Kind = profile.KindJIT }, false},
		{"another name", func(f *profile.Frame) { f.Function = "g" }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			other := base
			test.change(&other)
			if same := base.Key() == other.Key(); same != test.same {
				t.Errorf("same function: %v, want %v", same, test.same)
			}
		})
	}
	noSource := profile.Frame{Function: "f", Mapping: "/opt/v1/shop", Kind: profile.KindNative}
	if got := noSource.Key().FileBase; got != "shop" {
		t.Errorf("without a source file the binary counts, got %q", got)
	}
}

func TestNamePattern(t *testing.T) {
	for name, want := range map[string]string{"http-exec-12": "http-exec-#", "": "", "main": "main", "7": "#", "a1b22c": "a#b#c", "é9": "é#"} {
		if got := profile.NamePattern(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestBuilderFoldsWhatIsTheSame(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}})
	l := b.Location(profile.Location{BuildID: "a", Offset: 1})
	if again := b.Location(profile.Location{BuildID: "a", Offset: 1}, profile.Frame{Function: "late"}); again != l {
		t.Errorf("one place is two locations, %d and %d", l, again)
	}
	s := b.Stack([]profile.LocationID{l}, profile.EndComplete)
	if b.Stack([]profile.LocationID{l}, profile.EndTooDeep) == s {
		t.Error("stacks that ended in different ways are one")
	}
	th := b.Thread(profile.Thread{TID: 1, Exact: profile.Exact{CPU: time.Second}})
	b.Thread(profile.Thread{TID: 1, Exact: profile.Exact{CPU: time.Second}})
	values := []int64{5}
	for range 3 {
		b.Add(profile.Row{Stack: s, Thread: th, N: 1, Values: values, Squares: []float64{25}})
	}
	values[0] = 99 // the builder must not hold on to it
	w := b.Window()
	if w.Rows.Len() != 1 || w.N() != 3 || w.Total(0) != 15 || w.Rows.At(0).Squares[0] != 75 {
		t.Errorf("rows %+v", w.Rows)
	}
	if f := w.Frames(l); f[0].Function != "late" {
		t.Errorf("a name that came late is lost: %+v", f)
	}
	if got := w.Thread(th).Exact.CPU; got != 2*time.Second {
		t.Errorf("thread used %s", got)
	}
	if w.Thread(0) != (profile.Thread{}) || w.Thread(77) != (profile.Thread{}) {
		t.Error("a thread nobody added")
	}
}

func TestFramesAreNeverNone(t *testing.T) {
	b := profile.NewBuilder(profile.Head{})
	tests := []struct{ got, want string }{
		{b.Window().Frames(b.Location(profile.Location{BuildID: "abc", Offset: 0x10}))[0].Function, "abc+0x10"},
		{b.Window().Frames(b.Location(profile.Location{Name: "f"}))[0].Function, "f"},
		{b.Window().Frames(b.Location(profile.Location{}))[0].Function, "[unknown]+0x0"},
		{profile.Unnamed(profile.KindNative, "/usr/lib/libz.so", 0x20).Function, "libz.so+0x20"},
	}
	for _, test := range tests {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestLosses(t *testing.T) {
	var h profile.Head
	h.AddLoss(profile.Loss{Reason: profile.LossDropped})
	if len(h.Losses) != 0 {
		t.Error("a loss of nothing was kept")
	}
	h.AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "a", N: 1, Value: 10})
	h.AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "b", N: 2, Value: 20})
	h.AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "a", N: 3, Value: 30})
	h.AddLoss(profile.Loss{Reason: profile.LossPruned, N: 9})
	if want := []profile.Loss{{profile.LossDropped, "a", 4, 40}, {profile.LossDropped, "b", 2, 20}, {profile.LossPruned, "", 9, 0}}; !slices.Equal(h.Losses, want) {
		t.Errorf("got %+v", h.Losses)
	}
	if sum := h.LossOf(profile.LossDropped); sum.N != 6 || sum.Value != 60 {
		t.Errorf("sum %+v", sum)
	}
	if got := (profile.Labels{"b": "x\n", "a": "1"}).String(); got != `{a="1", b="x\n"}` {
		t.Errorf("labels %s", got)
	}
}
