package golden

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// later is a window of an agent that knows more than this version: of an end, a kind of
// code, a class, a loss, a design and a kind of values.
func later() *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: "always", Target: profile.Labels{store.ServiceLabel: "shop", "node": "n1"}, Start: Epoch(), Duration: 10 * time.Second, Farewell: true,
		Types:  []profile.ValueType{profile.CPUTime(10), {Kind: "joules of tomorrow", Unit: "joules", Period: 1, Temporality: 200, Base: "meter of tomorrow"}},
		Design: "of tomorrow", Losses: []profile.Loss{{Reason: "evicted", Detail: "tomorrow's", N: 7, Value: 70}}})
	at := b.Named(profile.Frame{Function: "shop.serve", Kind: 200, Class: 201})
	for i, end := range []profile.End{profile.EndComplete, 100, 200} {
		n := int64(i + 1)
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{at}, end), N: n, Values: []int64{10 * n, n}, Squares: []float64{float64(100 * n)}})
	}
	return b.Window()
}

// spooledLater is it as that agent leaves it in its spool, with fields that nobody knows.
func spooledLater(t *testing.T) []byte {
	t.Helper()
	field := protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of tomorrow")
	s := wire.Seal(later(), profile.Run{5})
	s.Window.ProtoReflect().SetUnknown(field)
	s.Window.Losses[0].ProtoReflect().SetUnknown(field)
	s.Dictionary = append(s.Dictionary, field...)
	data, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return append(data, field...)
}

// facts are what may not be lost of it, wherever it goes.
func facts(t *testing.T, where string, w *profile.Window) {
	t.Helper()
	sum := summary{}
	sum.add("later", w)
	text := sum.String()
	for _, fact := range []string{`"of tomorrow"`, "{joules of tomorrow joules 1 other (200) of meter of tomorrow}", `loss "evicted" "tomorrow's": 1 times, n 7, values [70]`,
		"ended other (100): 1 times, n 2, values [20 2]", "ended other (200): 1 times, n 3, values [30 3]", "in shop.serve: 3 times, n 6, values [60 6]"} {
		if !strings.Contains(text, fact) {
			t.Errorf("%s it lacks %s:\n%s", where, fact, text)
		}
	}
	if !w.Farewell {
		t.Errorf("%s it lacks the farewell", where)
	}
	for _, f := range w.Frames(0) {
		if f.Kind != 200 || f.Class != 201 {
			t.Errorf("%s its frame is %+v", where, f)
		}
	}
}

// TestLater has what a later version sends be spooled, shipped, kept, rolled up, asked
// for and written to a file by this one.
func TestLater(t *testing.T) {
	waiting, err := spool.Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if _, err := waiting.Add([][]byte{spooledLater(t)}); err != nil {
		t.Fatal(err)
	}
	at, s := serve(t)
	drain(t, waiting, at.Remote(auth.Agent))
	if lost := waiting.Stats().Losses; lost.All() > 0 {
		t.Fatalf("lost is %+v", lost)
	}
	var scanned *profile.Window
	err = s.Scan(t.Context(), auth.DefaultTenant, store.Query{To: Now()}, func(w *profile.Window, _ profile.Run) error {
		scanned = w
		return nil
	})
	if err != nil || scanned == nil {
		t.Fatal(scanned, err)
	}
	facts(t, "kept", scanned)
	file := filepath.Join(t.TempDir(), "later.pb.gz")
	if err := format.WriteFile(file, format.PProf, scanned, format.Options{}); err != nil {
		t.Fatal(err)
	}
	facts(t, "in a file", readProfile(t, file))
	query := atysv1connect.NewQueryClient(at.As(auth.Reader), at.URL, Asking())
	top, err := query.Top(t.Context(), &atysv1.TopRequest{Selection: selections()["all"]})
	if err != nil || top.GetN() != 6 || top.GetValue() != 60 || len(top.GetCoverage().GetLosses()) != 1 {
		t.Errorf("top: %v, %v", top, err)
	}
	a := &answers{T: t, at: at}
	for _, page := range []string{"/?last=73h", "/flame?last=73h"} {
		if text := a.get(page); !strings.Contains(text, "evicted") {
			t.Errorf("%s does not tell of the loss", page)
		}
	}
}

// TestLaterWord has a file of another tool, or version, name an end that has no number.
func TestLaterWord(t *testing.T) {
	w := later()
	for i := range w.Stacks {
		w.Stacks[i].End = profile.ParseEnd("of tomorrow")
	}
	file := filepath.Join(t.TempDir(), "word.pb.gz")
	if err := format.WriteFile(file, format.PProf, w, format.Options{}); err != nil {
		t.Fatal(err)
	}
	if end := readProfile(t, file).Stacks[0].End; end != profile.EndOther || !end.Truncated() || end.String() != "other" {
		t.Errorf("it ends %s", end)
	}
}
