package live

import (
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// mixed is 100 samples of an application, serve, that calls a library, an
// interpreter, and itself through a hook, beside a collector's thread.
func mixed() Table {
	b := profile.NewBuilder(profile.Head{Duration: time.Second, Design: profile.DesignRandomised,
		Types: []profile.ValueType{profile.CPUTime(0)}})
	frame := func(name string, class profile.Class) profile.LocationID {
		return b.Named(profile.Frame{Function: name, Class: class, Kind: profile.KindPython, File: name + ".py"})
	}
	serve, hook := frame("serve", profile.ClassApplication), frame("hook", profile.ClassApplication)
	json, eval, mark := frame("json", profile.ClassLibrary), frame("eval", profile.ClassRuntime), frame("mark", profile.ClassRuntime)
	add := func(n int64, end profile.End, leafFirst ...profile.LocationID) {
		b.Add(profile.Row{Stack: b.Stack(leafFirst, end), N: n, Values: []int64{n * 1e7}, Squares: []float64{float64(n) * 1e14}})
	}
	add(10, profile.EndComplete, serve, eval)
	add(40, profile.EndComplete, eval, json, serve, eval)
	add(20, profile.EndComplete, hook, json, serve, eval)
	add(25, profile.EndComplete, mark)
	add(5, profile.EndTooDeep, eval)
	r := Rolling{Span: time.Second}
	r.Add(NewDigest(b.Window()))
	return r.Table()
}

func TestOwnCode(t *testing.T) {
	got := OwnCode(mixed())
	want := []struct {
		name       string
		own, total float64
	}{{"serve", 0.5, 0.7}, {"[runtime]", 0.25, 0.25}, {"hook", 0.2, 0.2}, {"[too deep]", 0.05, 0.05}}
	if len(got.Functions) != len(want) {
		t.Fatalf("%+v, want %v", got.Functions, want)
	}
	sum := 0.0
	for i, w := range want {
		f := got.Functions[i]
		if f.Function != w.name || !near(f.Self, w.own) || !near(f.Total, w.total) || !near(f.Rate, w.own) {
			t.Errorf("row %d: %+v, want %v", i, f, w)
		}
		if f.SelfLow > f.Self || f.SelfHigh < f.Self || f.SelfHigh == f.SelfLow {
			t.Errorf("row %d: interval %v to %v around %v", i, f.SelfLow, f.SelfHigh, f.Self)
		}
		sum += f.Self
	}
	if !near(sum, 1) {
		t.Errorf("own shares add up to %v", sum)
	}
	for _, f := range AllCode(mixed()).Functions {
		if strings.HasPrefix(f.Function, "[") {
			t.Errorf("%q is no function", f.Function)
		}
	}
}

func TestOwnKey(t *testing.T) {
	s := &Screen{}
	s.Show(mixed())
	drawn := func() string { return strings.Join(s.Lines(100, 14), "\n") }
	if out := drawn(); !strings.Contains(out, "SELF*") || !strings.Contains(out, "eval") || strings.Contains(out, "own code") {
		t.Errorf("all code:\n%s", out)
	}
	press(s, "o")
	if out := drawn(); !strings.Contains(out, " OWN*") || !strings.Contains(out, "[runtime]") || strings.Contains(out, "eval") || !strings.Contains(out, "own code") {
		t.Errorf("own code:\n%s", out)
	}
	press(s, "T")
	if out := drawn(); strings.Contains(out, "own code") {
		t.Errorf("threads:\n%s", out)
	}
	press(s, "o") // from the threads it leads to the functions first
	if out := drawn(); !strings.Contains(out, "own code") {
		t.Errorf("own code again:\n%s", out)
	}
	press(s, "o")
	if out := drawn(); !strings.Contains(out, "eval") {
		t.Errorf("all code again:\n%s", out)
	}
}
