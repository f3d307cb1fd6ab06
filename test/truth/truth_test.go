package truth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

const sample = `{"victim":"v","pid":7,"slot":10,"start":100,"stacks":["","main;a","main;a;b","main;c;a"]}
{"at":100,"ns":[0,4,4,2]}
{"at":110,"ns":[1,0,8,1]}
{"at":130,"ns":[0,10,0,0]}
{"end":140,"accounted":30,"cpu":31,"settled":3}
`

func TestRead(t *testing.T) {
	l, err := Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	if l.Victim != "v" || l.PID != 7 || l.Start != 100 || l.End != 140 || l.CPU != 31 {
		t.Errorf("head: %+v", l)
	}
	tests := []struct {
		name            string
		from, to        int64
		self, inclusive map[string]float64
	}{
		{"all", 100, 140, map[string]float64{"": 1, "a": 17, "b": 12}, map[string]float64{"": 1, "a": 29, "b": 12, "c": 3, "main": 29}},
		{"half slots", 105, 115, map[string]float64{"": 0.5, "a": 3.5, "b": 6}, map[string]float64{"": 0.5, "a": 9.5, "b": 6, "c": 1.5, "main": 9.5}},
		{"a gap", 120, 130, map[string]float64{"": 0, "a": 0, "b": 0}, map[string]float64{"": 0, "a": 0, "b": 0, "c": 0, "main": 0}},
		{"outside", 0, 100, map[string]float64{"": 0, "a": 0, "b": 0}, map[string]float64{"": 0, "a": 0, "b": 0, "c": 0, "main": 0}},
	}
	for _, tt := range tests {
		if got := l.Self(tt.from, tt.to); fmt.Sprint(clean(got)) != fmt.Sprint(clean(tt.self)) {
			t.Errorf("%s: self %v, want %v", tt.name, got, tt.self)
		}
		if got := l.Inclusive(tt.from, tt.to); fmt.Sprint(clean(got)) != fmt.Sprint(clean(tt.inclusive)) {
			t.Errorf("%s: inclusive %v, want %v", tt.name, got, tt.inclusive)
		}
	}
}

func TestRenamedJoinsFunctions(t *testing.T) {
	l, err := Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	joined := l.Renamed(func(string) string { return "one" })
	if got := clean(joined.Self(100, 140)); fmt.Sprint(got) != fmt.Sprint(map[string]float64{"": 1, "one": 29}) {
		t.Errorf("renamed: %v", got)
	}
	if got := clean(l.Self(100, 140)); got["a"] != 17 {
		t.Errorf("the log itself was renamed: %v", got)
	}
}

func TestOnlyOneThread(t *testing.T) {
	w := &profile.Window{
		Threads: []profile.Thread{{PID: 7, TID: 7}, {PID: 7, TID: 8}, {PID: 9, TID: 9}},
		Samples: []profile.Sample{{Thread: 1}, {Thread: 2}, {Thread: 3}, {Thread: 2}},
	}
	for _, tt := range []struct {
		log  Log
		want int
	}{{Log{PID: 7}, 3}, {Log{PID: 7, TID: 8}, 2}, {Log{PID: 9}, 1}, {Log{PID: 8}, 0}} {
		if got := len(tt.log.Only(w).Samples); got != tt.want {
			t.Errorf("process %d, thread %d: %d samples, want %d", tt.log.PID, tt.log.TID, got, tt.want)
		}
	}
	if len(w.Samples) != 4 {
		t.Error("the window itself was changed")
	}
}

// clean leaves out what did not burn.
func clean(m map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, v := range m {
		if v != 0 {
			out[k] = v
		}
	}
	return out
}

func TestReadRefuses(t *testing.T) {
	lines := strings.SplitAfter(sample, "\n")
	for name, text := range map[string]string{
		"nothing":        "",
		"no end":         strings.Join(lines[:3], ""),
		"no head":        strings.Join(lines[1:], ""),
		"not JSON":       lines[0] + "boom\n",
		"slots reversed": lines[0] + lines[2] + lines[1] + lines[4],
		"sites missing":  lines[0] + `{"at":100,"ns":[1]}` + "\n" + lines[4],
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// window builds a window whose stacks are a leaf function each, under a
// kernel frame and an inlined one, below main.
func window(start time.Time, length time.Duration, functions int) *profile.Window {
	w := &profile.Window{Head: profile.Head{
		Start: start, Duration: length, Types: []profile.ValueType{profile.CPUTime(0)},
	}}
	w.Locations = append(w.Locations, profile.Location{Kind: profile.KindKernel}, profile.Location{})
	w.Names = append(w.Names, []profile.Frame{{Function: "sysvec_apic_timer", Kind: profile.KindKernel}}, []profile.Frame{{Function: "main", Kind: profile.KindNative}})
	for f := range functions {
		id := profile.LocationID(len(w.Locations))
		w.Locations = append(w.Locations, profile.Location{Offset: uint64(f)})
		w.Names = append(w.Names, []profile.Frame{
			{Function: "burn", Kind: profile.KindNative, Inlined: true},
			{Function: fmt.Sprint("f", f), Kind: profile.KindNative},
		})
		w.Stacks = append(w.Stacks, profile.Stack{Locations: []profile.LocationID{0, id, 1}})
	}
	return w
}

// logOf writes the log that a victim running the program would.
func logOf(start int64, p stats.Program, functions int) string {
	const slot = int64(10 * time.Millisecond)
	var b strings.Builder
	fmt.Fprintf(&b, `{"victim":"simulated","pid":1,"slot":%d,"start":%d,"stacks":[""`, slot, start)
	for f := range functions {
		fmt.Fprintf(&b, `,"main;f%d"`, f)
	}
	b.WriteString("]}\n")
	var from time.Duration
	ns := make([]int64, functions)
	at := int64(0)
	flush := func() {
		fmt.Fprintf(&b, `{"at":%d,"ns":[0`, start+at)
		for f := range ns {
			fmt.Fprintf(&b, ",%d", ns[f])
			ns[f] = 0
		}
		b.WriteString("]}\n")
		at += slot
	}
	for _, s := range p {
		for int64(s.End) > at+slot {
			ns[s.Function] += at + slot - int64(from)
			from = time.Duration(at + slot)
			flush()
		}
		ns[s.Function] += int64(s.End - from)
		from = s.End
	}
	flush()
	fmt.Fprintf(&b, `{"end":%d,"cpu":%d}`+"\n", start+at, at)
	return b.String()
}

// score runs a design against a program and cuts it into windows of 0.5 s.
func score(t *testing.T, d stats.Design, cycle ...time.Duration) *Score {
	t.Helper()
	const length = 100 * time.Second
	rng := rand.New(rand.NewPCG(1, 2))
	epoch := time.Unix(1_700_000_000, 0)
	start := int64(5 * time.Second)
	p := stats.Phases(rng, length, 30*time.Microsecond, 0.001, 0.05, 0.3, 0.649)
	functions := 4
	if len(cycle) > 0 {
		p, functions = stats.Periodic(rng, length, cycle...), len(cycle)
	}
	l, err := Read(strings.NewReader(logOf(start, p, functions)))
	if err != nil {
		t.Fatal(err)
	}
	// The recording starts a little later than the victim, aligned to nothing.
	lag := 123457 * time.Microsecond
	w := window(epoch.Add(time.Duration(start)+lag), length-time.Second, functions)
	span := 0
	for _, s := range d.Draw(rng, length) {
		for p[span].End <= s.At {
			span++
		}
		if s.At >= lag && s.At < lag+w.Duration {
			w.Samples = append(w.Samples, profile.Sample{Time: s.At - lag, Weight: int64(s.Weight), Stack: profile.StackID(p[span].Function)})
		}
	}
	s := &Score{}
	for _, o := range Cut(w, epoch, 500*time.Millisecond) {
		s.Add(l, o)
	}
	return s
}

func TestScoreOfTheDesign(t *testing.T) {
	for name, cycle := range map[string][]time.Duration{
		"random":       nil,
		"periodic10ms": {3 * time.Millisecond, 7 * time.Millisecond},
		"resonant1ms":  {300 * time.Microsecond, 700 * time.Microsecond},
	} {
		s := score(t, stats.Randomised(999), cycle...)
		c := s.Total.Coverage().Value
		if s.Windows < 190 || c < 0.92 || s.Total.WidthRatio() > 1.1 || math.Abs(s.Total.Bias()) > 0.003 || s.By[Other] != nil {
			var b strings.Builder
			if _, err := s.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			t.Errorf("%s: the design does not hold:\n%s", name, b.String())
		}
	}
}

// Windows of two runs score as those of one run that is as long.
func TestScoreJoin(t *testing.T) {
	s := score(t, stats.Randomised(999))
	joined := &Score{}
	joined.Join(s)
	joined.Join(s)
	one, two := s.Coverage(), joined.Coverage()
	if joined.Windows != 2*s.Windows || joined.Total.N != 2*s.Total.N || joined.PerWindow() != s.PerWindow() {
		t.Errorf("%d windows of %d intervals; one had %d of %d", joined.Windows, joined.Total.N, s.Windows, s.Total.N)
	}
	if math.Abs(one.Value-two.Value) > 1e-9 || two.Width() > 0.8*one.Width() || one.Value != s.Total.Coverage().Value {
		t.Errorf("coverage %v of one, %v of both", one, two)
	}
	counted := 0
	for i, few := range s.Counts {
		if joined.Counts[i].N != 2*few.N {
			t.Errorf("%s expected: %d intervals, of one %d", CountRange(i), joined.Counts[i].N, few.N)
		}
		if i >= 4 {
			counted += few.N
		}
	}
	if counted != s.Total.N || s.Counts[0].N == 0 {
		t.Errorf("%d intervals of 5 or more expected, %d of less than 1; %d in all", counted, s.Counts[0].N, s.Total.N)
	}
	name, worst := joined.Worst()
	if worst == nil || math.Abs(worst.Bias()-s.By[name].Bias()) > 1e-9 {
		t.Errorf("the worst of both is %s", name)
	}
	for f, tally := range s.By {
		if math.Abs(tally.Bias()) > math.Abs(worst.Bias())+1e-9 {
			t.Errorf("%s is worse than %s", f, name)
		}
	}
}

// What a score is for: samples in step with their program must fail it.
func TestScoreSeesLockStep(t *testing.T) {
	fixed := stats.Design{Period: 10 * time.Millisecond, Fixed: true}
	if s := score(t, fixed, 3*time.Millisecond, 7*time.Millisecond); s.Total.Coverage().Value > 0.2 {
		t.Errorf("lock-step was covered in %v", s.Total.Coverage())
	}
}

func TestEpoch(t *testing.T) {
	a, err := Epoch()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	b, err := Epoch()
	if off := b.Sub(a).Abs(); err != nil || off > 10*time.Millisecond {
		t.Errorf("the epoch moved by %v (%v)", off, err)
	}
	if a.After(time.Now()) {
		t.Errorf("the machine started in the future: %v", a)
	}
}

func TestObserve(t *testing.T) {
	epoch := time.Unix(1000, 0)
	w := window(epoch.Add(2*time.Second), time.Second, 2)
	w.Rows = profile.RowsOf(1,
		profile.Row{Stack: 0, N: 2, Values: []int64{30}, Squares: []float64{500}},
		profile.Row{Stack: 1, N: 4, Values: []int64{40}}, // equal weights: squares follow
		profile.Row{Stack: 0, N: 1, Values: []int64{10}, Squares: []float64{100}},
	)
	o := Observe(w, epoch)
	if o.From != 2e9 || o.To != 3e9 {
		t.Errorf("from %d to %d", o.From, o.To)
	}
	if got, want := o.Self["f0"], (stats.Sums{N: 3, Weight: 40, Squares: 600}); got != want {
		t.Errorf("f0: %v, want %v", got, want)
	}
	if want := (stats.Sums{N: 7, Weight: 80, Squares: 1000}); o.Whole != want {
		t.Errorf("whole: %v, want %v", o.Whole, want)
	}
}

// Whatever was logged, time is neither lost nor counted twice where a stretch is cut in two.
func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), int64(104))
	f.Fuzz(func(t *testing.T, text []byte, cut int64) {
		l, err := Read(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		cut = min(max(cut, 0), maxInstant)
		whole, left, right := l.Self(0, maxInstant), l.Self(0, cut), l.Self(cut, maxInstant)
		for f, ns := range whole {
			if off := math.Abs(ns - left[f] - right[f]); off > 1e-9*ns {
				t.Errorf("%q: %v whole, %v and %v in parts", f, ns, left[f], right[f])
			}
		}
	})
}
