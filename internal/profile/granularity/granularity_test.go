package granularity

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// sample is one on CPU 0 unless it says another.
type sample struct {
	at     time.Duration
	module string
	weight time.Duration
	delta  int64
	cpu    int
}

const ms = time.Millisecond

func window(kinds []profile.ValueType, samples ...sample) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: kinds})
	for _, s := range samples {
		stack := b.Stack(nil, profile.EndNoUser)
		if s.module != "" {
			stack = b.Stack([]profile.LocationID{b.Location(profile.Location{Name: s.module}, profile.Frame{Function: "f", Mapping: "/bin/" + s.module})}, profile.EndComplete)
		}
		b.AddSample(profile.Sample{Time: s.at, CPU: s.cpu, Stack: stack, Weight: int64(s.weight), Delta: s.delta})
	}
	return b.Window()
}

func clock() []profile.ValueType { return []profile.ValueType{profile.CPUTime(0)} }

func TestObserve(t *testing.T) {
	for _, c := range []struct {
		name      string
		samples   []sample
		breaks    int
		intervals []time.Duration // sorted
		runs      []time.Duration
	}{
		{"one sample", []sample{{0, "a", 10 * ms, 0, 0}}, 0, nil, []time.Duration{10 * ms}},
		{"one module", []sample{{0, "a", 10 * ms, 0, 0}, {10 * ms, "a", 10 * ms, 0, 0}, {20 * ms, "a", 10 * ms, 0, 0}},
			0, []time.Duration{10 * ms, 10 * ms}, []time.Duration{30 * ms}},
		{"two modules", []sample{{0, "a", 10 * ms, 0, 0}, {10 * ms, "a", 10 * ms, 0, 0}, {20 * ms, "b", 10 * ms, 0, 0}, {31 * ms, "a", 10 * ms, 0, 0}},
			0, []time.Duration{10 * ms, 10 * ms, 11 * ms}, []time.Duration{10 * ms, 11 * ms, 20 * ms}},
		{"idle in between", []sample{{0, "a", 10 * ms, 0, 0}, {20 * ms, "a", 10 * ms, 0, 0}},
			1, nil, []time.Duration{10 * ms, 10 * ms}},
		{"a new block of samples", []sample{{0, "a", 10 * ms, 0, 0}, {17 * ms, "a", 8 * ms, 0, 0}, {25 * ms, "a", 8 * ms, 0, 0}},
			0, []time.Duration{8 * ms, 17 * ms}, []time.Duration{35 * ms}},
		{"idle before a new block", []sample{{0, "a", 10 * ms, 0, 0}, {19 * ms, "a", 8 * ms, 0, 0}},
			1, nil, []time.Duration{8 * ms, 10 * ms}},
		{"two CPUs, out of order", []sample{{10 * ms, "a", 10 * ms, 0, 1}, {9 * ms, "b", 9 * ms, 0, 0}, {0, "b", 9 * ms, 0, 0}, {0, "a", 10 * ms, 0, 1}},
			0, []time.Duration{9 * ms, 10 * ms}, []time.Duration{18 * ms, 20 * ms}},
		{"stacks without frames", []sample{{0, "", 10 * ms, 0, 0}, {10 * ms, "", 10 * ms, 0, 0}},
			0, []time.Duration{10 * ms}, []time.Duration{20 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Observe(window(clock(), c.samples...))
			if err != nil {
				t.Fatal(err)
			}
			if o.Samples != len(c.samples) || o.Breaks != c.breaks || o.Events != nil {
				t.Errorf("%d samples, %d breaks, events %v; want %d breaks", o.Samples, o.Breaks, o.Events, c.breaks)
			}
			if want := summary(c.intervals); !reflect.DeepEqual(o.Intervals, want) {
				t.Errorf("intervals %+v, want %+v", o.Intervals, want)
			}
			if want := summary(c.runs); !reflect.DeepEqual(o.Runs, want) {
				t.Errorf("runs %+v, want %+v", o.Runs, want)
			}
			if len(c.intervals) > 0 && math.Abs(o.Rates.Mean*o.Intervals.Mean/o.Runs.Mean-1) > 1e-9 {
				t.Errorf("R is %v for runs of %v, intervals of %v", o.Rates.Mean, o.Runs.Mean, o.Intervals.Mean)
			}
		})
	}
}

func summary(durations []time.Duration) Distribution {
	values := make([]float64, len(durations))
	for i, d := range durations {
		values[i] = float64(d)
	}
	return distribution(values)
}

// Each sample is a CPU's first, follows on one, or does not; and runs are as
// long as the intervals in them and what their first samples stand for.
func TestObserveCountsEachSampleOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		samples := make([]sample, 1+rng.IntN(60))
		for i := range samples {
			samples[i] = sample{time.Duration(rng.IntN(100)) * ms, []string{"a", "b"}[rng.IntN(2)], 10 * ms, 0, rng.IntN(3)}
		}
		o, err := Observe(window(clock(), samples...))
		if err != nil {
			t.Fatal(err)
		}
		first := o.CPUs + o.Breaks
		if first+o.Intervals.N != o.Samples || o.Samples != len(samples) {
			t.Fatalf("of %d samples %d are first, %d follow", len(samples), first, o.Intervals.N)
		}
		spent, want := o.Runs.Mean*float64(o.Runs.N), o.Intervals.Mean*float64(o.Intervals.N)+float64(first)*float64(10*ms)
		if math.Abs(spent-want) > 1 {
			t.Fatalf("runs of %v in all, want %v", time.Duration(spent), time.Duration(want))
		}
	}
}

// Variances are of modules with more than ten samples, whose intervals are known.
func TestObserveEvents(t *testing.T) {
	types := append(clock(), profile.ValueType{Kind: "cycles", Unit: "count"})
	var samples []sample
	at := time.Duration(0)
	for i := range 24 { // 11 in busy after the first, 12 in rare's one and other's
		at += 10 * ms
		s := sample{at, "busy", 10 * ms, int64(10*ms) * int64(1+i%2), 0}
		if i >= 12 {
			s.module = []string{"rare", "other"}[i%2]
		}
		samples = append(samples, s)
	}
	o, err := Observe(window(types, samples...))
	if err != nil {
		t.Fatal(err)
	}
	e := o.Events
	if e == nil || e.Kind != "cycles" || e.Modules != 3 || e.Values.N != 23 || e.Values.Min != 1 || e.Values.Max != 2 {
		t.Fatalf("%+v", e)
	}
	// of 11 values 6 are 2 and 5 are 1
	if want := 11.0 / 10 * 6 / 11 * 5 / 11; e.Variances.N != 1 || math.Abs(e.Variances.Mean-want) > 1e-12 {
		t.Errorf("variances %+v, want one of %v", e.Variances, want)
	}
}

func TestObserveRefuses(t *testing.T) {
	one := sample{0, "a", 10 * ms, 0, 0}
	thinned := window(clock(), one)
	thinned.Design = profile.DesignThinned
	for name, c := range map[string]struct {
		w    *profile.Window
		want error
	}{
		"no times": {window(clock()), ErrNoTimes},
		"no clock": {window([]profile.ValueType{{Kind: "page-faults", Unit: "count"}}, one), ErrNoClock},
		"no types": {window(nil, one), ErrNoClock},
		"thinned":  {thinned, ErrThinned},
	} {
		if _, err := Observe(c.w); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestBins(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		first  []float64 // edges
		counts []int
	}{
		{"one value", []float64{5, 5, 5}, []float64{5}, []int{3}},
		{"one width", []float64{0, 0.5, 1, 11.5, 12}, []float64{0, 1, 2}, []int{2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
		{"a wide range", []float64{1, 1.5, 2, 4, 4096}, []float64{1, 2, 4}, []int{2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
	} {
		got := bins(c.values)
		var counts []int
		for _, b := range got {
			counts = append(counts, b.N)
		}
		if !slices.Equal(counts, c.counts) {
			t.Errorf("%s: %v, want %v", c.name, counts, c.counts)
		}
		for i, edge := range c.first {
			if math.Abs(got[i].From-edge) > 1e-9 {
				t.Errorf("%s: bin %d begins at %v, want %v", c.name, i, got[i].From, edge)
			}
		}
	}
}
