package symbol

import (
	"os"
	"reflect"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/profile"
)

// TestLimit has naming be limited to next to nothing: what is not known waits and is
// counted as such, the place with most samples is named first, and without a limit all
// have names.
func TestLimit(t *testing.T) {
	f, err := binfile.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := New(Options{})
	defer r.Close()
	r.AddFile(f.BuildID(), "/bin/test", func() (*os.File, error) { return os.Open("/proc/self/exe") })
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(1)}})
	var places []profile.LocationID
	for _, function := range []any{New, order, outcomeOf, encodeFunctions, u32, stringAt, newTableCache, ofKind, NewJIT, NewKernel} {
		if off, ok := f.Offset(uint64(reflect.ValueOf(function).Pointer())); ok { // tests are linked at fixed addresses
			places = append(places, b.Location(profile.Location{Kind: profile.KindNative, BuildID: f.BuildID(), Offset: off}))
		}
	}
	if len(places) < 10 {
		t.Fatalf("%d functions of ours", len(places))
	}
	const most = 7
	for i, l := range places {
		n := int64(1)
		if i == most {
			n = 100
		}
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{l}, 0), N: n, Values: []int64{n}})
	}
	w := b.Window()
	r.Limit(1e-9)
	r.pace.Take(-1) // there is a little in the bucket
	r.Name(t.Context(), w)
	if w.Names[places[most]][0].IsUnnamed() {
		t.Error("the place with most samples is not named first")
	}
	var waits profile.Loss
	for _, l := range w.Losses {
		if l.Reason == profile.LossUnsymbolized && l.Detail == DetailDeferred {
			waits = l
		}
	}
	if want := int64(len(places) - 1); waits.N != want {
		t.Errorf("%d samples wait for names, want %d: %+v", waits.N, want, w.Losses)
	}
	r.Limit(0)
	r.Name(t.Context(), w)
	if n := w.LossOf(profile.LossUnsymbolized).N; n != 0 {
		t.Errorf("without a limit %d samples have no name: %+v", n, w.Losses)
	}
}
