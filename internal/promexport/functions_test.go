package promexport

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"atys.dev/atys/internal/profile"
)

// window is one of a service, with so many samples of 10 ms in each function.
func window(service string, exact time.Duration, samples map[string]int64) *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: "builtin", Target: profile.Labels{"service": service, "node": "n"},
		Types: []profile.ValueType{profile.CPUTime(0)}, Exact: profile.Exact{CPU: exact}})
	for name, n := range samples {
		leaf := b.Named(profile.Frame{Function: name, File: "/src/" + name + ".go"})
		root := b.Named(profile.Frame{Function: "main", File: "/src/main.go"})
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf, root}, profile.EndComplete), N: n, Values: []int64{n * 1e7}})
	}
	return b.Window()
}

// series gives what is shown, by metric and labels.
func series(t *testing.T, f *Functions) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(f)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			all[family.GetName()+shownLabels(m)] = m.GetCounter().GetValue()
		}
	}
	return all
}

func shownLabels(m *dto.Metric) string {
	var parts []string
	for _, l := range m.Label {
		if l.GetName() == "service" || l.GetName() == "function" {
			parts = append(parts, l.GetValue())
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestSeconds(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := NewFunctions(func() time.Time { return now })
	f.Add(window("shop", 2*time.Second, map[string]int64{"parse": 75, "hash": 25}), 10) // twice what was sampled
	f.Add(window("shop", time.Second, map[string]int64{"hash": 50}), 10)
	f.Add(window("cart", 0, map[string]int64{"add": 100}), 10) // not known exactly
	sibling := window("shop", time.Second, map[string]int64{"hash": 10})
	sibling.Target["executable"] = "helper" // no label of metrics: one with the first
	f.Add(sibling, 10)
	got := series(t, f)
	for name, want := range map[string]float64{
		"atys_function_cpu_seconds_total{parse,shop}": 1.5, "atys_function_cpu_seconds_total{hash,shop}": 2.5,
		"atys_function_cpu_seconds_total{add,cart}": 1, "atys_target_cpu_seconds_total{shop}": 4, "atys_target_cpu_seconds_total{cart}": 1,
		"atys_target_samples_total{shop}": 160,
	} {
		if v := got[name]; v < want-1e-9 || v > want+1e-9 {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	if problems, err := testutil.CollectAndLint(f); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestNeverBackwards has the hottest functions change at random for hours: no
// counter that was shown within the time that it is remembered for is ever less, and there are
// never more series than are allowed.
func TestNeverBackwards(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := NewFunctions(func() time.Time { return now })
	r := rand.New(rand.NewPCG(1, 2))
	type last struct {
		value float64
		at    time.Time
	}
	before := map[string]last{}
	const top, services = 3, 4
	returned := 0
	for range 1500 {
		now = now.Add(10 * time.Second)
		for s := range services {
			if r.IntN(3) == 0 {
				continue
			}
			hot := int(now.Unix()/300) % 7 // every five minutes others are hot
			samples := map[string]int64{}
			for range 20 {
				samples[fmt.Sprintf("f%d", hot*20+r.IntN(20))] += r.Int64N(20)
			}
			samples[fmt.Sprintf("rare%d", r.IntN(10000))] = 1
			f.Add(window(fmt.Sprint("s", s), time.Second, samples), top)
		}
		functions := 0
		for name, value := range series(t, f) {
			was, ok := before[name]
			if ok && now.Sub(was.at) < forget && value < was.value-1e-9 {
				t.Fatalf("%s fell from %v to %v within %v", name, was.value, value, now.Sub(was.at))
			}
			if ok && now.Sub(was.at) > hold {
				returned++
			}
			before[name] = last{value, now}
			if strings.HasPrefix(name, "atys_function") {
				functions++
			}
		}
		if functions > 2*top*services {
			t.Fatalf("%d series of functions", functions)
		}
	}
	if returned == 0 {
		t.Error("no function came back")
	}
}

// TestLongWindows has windows of an hour: what they tell of is shown from one to the
// next, and goes on.
func TestLongWindows(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := NewFunctions(func() time.Time { return now })
	for i := range 4 {
		w := window("shop", 100*time.Second, map[string]int64{"parse": 75, "hash": 25})
		w.Duration = time.Hour
		f.Add(w, 10)
		for range 4 {
			if got, want := series(t, f)["atys_function_cpu_seconds_total{parse,shop}"], 75*float64(i+1); math.Abs(got-want) > 1e-6 {
				t.Errorf("%v after the beginning: %v seconds, want %v", now.Sub(time.Unix(1e9, 0)), got, want)
			}
			now = now.Add(15 * time.Minute)
		}
		now = now.Add(50 * time.Millisecond)
	}
}

// TestBounds has more targets and functions than there is room for.
func TestBounds(t *testing.T) {
	now := time.Unix(1e9, 0)
	f := NewFunctions(func() time.Time { return now })
	for i := range maxTargets + 50 {
		f.Add(window(fmt.Sprint("s", i), time.Second, map[string]int64{"f": 1}), 1)
	}
	if got := series(t, f)["atys_windows_not_exported_total{}"]; got != 50 {
		t.Errorf("%v windows found no room, want 50", got)
	}
	many := map[string]int64{}
	for i := range maxFunctions + 1000 {
		many[fmt.Sprint("f", i)] = int64(i + 1)
	}
	f.Add(window("s0", time.Hour, many), 5)
	for _, target := range f.targets {
		if n := len(target.functions); n > maxFunctions+5 {
			t.Errorf("%d functions are kept of a target", n)
		}
	}
	now = now.Add(gone + time.Second)
	if got := series(t, f); len(got) != 1 {
		t.Errorf("%d series of targets that are gone", len(got))
	}
	now = now.Add(forget)
	series(t, f)
	if len(f.targets) != 0 {
		t.Errorf("%d targets are remembered", len(f.targets))
	}
	long := strings.Repeat("ü", 3000)
	if a, b := labelValue(long+"a"), labelValue(long+"b"); a == b || len([]rune(a)) > maxLabel {
		t.Errorf("%q and %q", a, b)
	}
	if got := labelValue("a\xffb"); got != "a\ufffdb" {
		t.Errorf("%q", got)
	}
}
