package refine

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
)

// byEndpoint sets the endpoint of samples that a handler is on.
func byEndpoint(frames []profile.Frame, c profile.Context) profile.Context {
	for _, f := range frames {
		if name, ok := strings.CutPrefix(f.Function, "handle:"); ok {
			return profile.Context{Endpoint: name}
		}
	}
	return c
}

func TestWindow(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(1), {Kind: "waits", Unit: "count"}}})
	leaf, pay, list := b.Named(profile.Frame{Function: "leaf"}), b.Named(profile.Frame{Function: "handle:/pay"}), b.Named(profile.Frame{Function: "handle:/list"})
	traced := b.Context(profile.Context{Labels: "1"})
	other := b.Context(profile.Context{Labels: "2"})
	for _, row := range []struct {
		stack   []profile.LocationID
		context profile.ContextID
		n       int64
	}{{[]profile.LocationID{leaf, pay}, traced, 1}, {[]profile.LocationID{leaf, pay}, other, 2}, {[]profile.LocationID{leaf, pay}, 0, 4}, {[]profile.LocationID{leaf, list}, 0, 8}, {[]profile.LocationID{leaf}, other, 16}} {
		b.Add(profile.Row{Stack: b.Stack(row.stack, profile.EndComplete), Context: row.context, N: row.n, Values: []int64{10 * row.n, row.n}, Squares: []float64{100 * float64(row.n), float64(row.n)}})
	}
	w := b.Window()
	if Window(w) != w || Window(w, func(_ []profile.Frame, c profile.Context) profile.Context { return c }) != w {
		t.Error("rules that change nothing make another window")
	}
	before := w.Rows.Clone()
	got := Window(w, byEndpoint)
	if !reflect.DeepEqual(w.Rows, before) || len(w.Contexts) != 2 {
		t.Error("the window is modified")
	}
	sums := map[profile.Context]profile.Row{}
	for _, row := range got.Rows.All() {
		c := profile.Context{}
		if row.Context != 0 {
			c = got.Contexts[row.Context-1]
		}
		if _, twice := sums[c]; twice {
			t.Errorf("two rows of %+v", c)
		}
		sums[c] = row
	}
	for c, n := range map[profile.Context]int64{{Endpoint: "/pay"}: 7, {Endpoint: "/list"}: 8, {Labels: "2"}: 16} {
		if row := sums[c]; row.N != n || row.Values[0] != 10*n || row.Values[1] != n || row.Squares[0] != 100*float64(n) {
			t.Errorf("%+v has %+v, want %d samples", c, row, n)
		}
	}
	if len(got.Contexts) != 3 {
		t.Errorf("contexts %+v", got.Contexts)
	}
}

// TestNothingIsLost compares sums of random windows.
func TestNothingIsLost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		w := profiletest.Random(r)
		got := Window(w, func(frames []profile.Frame, c profile.Context) profile.Context {
			if len(frames)%2 == 0 {
				c.Reason, c.Labels = "", ""
			}
			return c
		})
		contextOf := func(w *profile.Window, id profile.ContextID) (c profile.Context) {
			if id != 0 {
				c = w.Contexts[id-1]
			}
			return c
		}
		for i, e := range got.Exemplars {
			if was, is := contextOf(w, w.Exemplars[i].Context), contextOf(got, e.Context); is.Endpoint != was.Endpoint || is.Interval != was.Interval {
				t.Fatalf("an exemplar of %+v has become one of %+v", was, is)
			}
		}
		if got.N() != w.N() || got.Rows.Len() > w.Rows.Len() {
			t.Fatalf("%d samples of %d", got.N(), w.N())
		}
		for i := range w.Types {
			if a, b := got.Rows.Total(i), w.Rows.Total(i); a.Value != b.Value {
				t.Fatalf("%+v of %+v", a, b)
			}
		}
	}
}
