package pipeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

const every = 10 * time.Second

// shift is a line that cuts windows of 10 seconds by the clock.
type shift struct {
	*works
	at   time.Time // of the next edge but for what cuts are late by
	late time.Duration
	kept []*Kept
}

func newShift(t *testing.T) *shift {
	t.Helper()
	return &shift{works: newWorks(t, Line{}, nil), at: time.Unix(1_800_000_000, 0)}
}

// cut cuts a window in which services have samples, each of a ns.
func (s *shift) cut(long Long, last bool, late time.Duration, samples map[string]int64) (start time.Time, length time.Duration) {
	start = s.at.Add(s.late)
	s.at, s.late = s.at.Add(every), late
	length = s.at.Add(late).Sub(start)
	b := profile.NewBuilder(profile.Head{Start: start, Duration: length, Watched: length, Types: []profile.ValueType{profile.CPUTime(1)}})
	var targets []profile.Labels
	for i, service := range slices.Sorted(keysOf(samples)) {
		n := samples[service]
		thread := b.Thread(profile.Thread{PID: i + 1, TID: i + 1, Process: service, Exact: profile.Exact{CPU: time.Duration(n + 1)}})
		targets = append(targets, profile.Labels{"service": service})
		if n > 0 {
			b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: service})}, profile.EndTooDeep), Thread: thread, N: n, Values: []int64{n}, Squares: []float64{float64(n)}})
		}
	}
	w := b.Window()
	s.Add(s.line, &Piece{Cuts: []*Cut{{Window: w, Targets: TargetsOf(w.Threads, targets), Kept: s.kept}}, Ends: &profile.Head{Cost: profile.Cost{User: 1}}, Last: last, Long: long})
	return start, length
}

func keysOf(m map[string]int64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// parts returns all windows of services, in the order in which they came.
func (s *shift) parts() map[string][]*profile.Window {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]*profile.Window{}
	for _, d := range s.delivered {
		for _, p := range d.Parts {
			all[p.Target["service"]] = append(all[p.Target["service"]], p)
		}
	}
	return all
}

// arrived waits until so many windows have come through.
func (s *shift) arrived(t *testing.T, n int) {
	t.Helper()
	testwait.Until(t, "the window comes through", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.delivered) >= n
	})
}

// TestLongerWindows has services come, go, idle and be busy while windows of tiny ones may be
// longer from time to time: no sample, exact time, loss or cost is lost or counted twice,
// windows of a service follow each other within a minute each, and those of a busy one are cut
// as others.
func TestLongerWindows(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newShift(t)
		type sums struct{ n, value, exact, truncated int64 }
		want, got := map[string]sums{}, map[string]sums{}
		busy := map[string]bool{} // by service and start
		long, windows := Long{Every: every, Times: 6}, 40
		for i := range windows {
			samples := map[string]int64{}
			for service := range 6 {
				name := fmt.Sprint(service)
				switch r.IntN(4) {
				case 0: // it uses nothing
				case 1:
					samples[name] = fewSamples + r.Int64N(100)
				default:
					samples[name] = r.Int64N(fewSamples)
				}
			}
			if r.IntN(10) == 0 {
				long.Times = 6 - long.Times
			}
			start, length := s.cut(long, i == windows-1 && seed%2 == 0, time.Duration(r.IntN(1000))*time.Millisecond, samples)
			for service, n := range samples {
				w := want[service]
				want[service] = sums{w.n + n, w.value + n, w.exact + n + 1, w.truncated + n}
				if n >= fewSamples {
					busy[fmt.Sprint(service, start.UnixNano(), length)] = true
				}
			}
			s.arrived(t, i+1)
		}
		<-s.Finish(testwait.Longest(t)) // also without a last window
		cost := time.Duration(0)
		for service, parts := range s.parts() {
			var before time.Time
			for _, p := range parts {
				if cost += p.Cost.User; service == "" {
					continue
				}
				g := got[service]
				got[service] = sums{g.n + p.N(), g.value + p.Total(0), g.exact + int64(p.Exact.CPU), g.truncated + p.LossOf(profile.LossTruncated).N}
				delete(busy, fmt.Sprint(service, p.Start.UnixNano(), p.Duration))
				end := p.Start.Add(p.Duration)
				if p.Start.Before(before) || p.Start.Truncate(time.Minute) != end.Add(-2*time.Second).Truncate(time.Minute) {
					t.Fatalf("seed %d: service %s has a window from %v to %v, after one that ended at %v", seed, service, p.Start, end, before)
				}
				before = end
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || cost != time.Duration(windows) {
			t.Fatalf("seed %d: %+v, want %+v; cost %d of %d", seed, got, want, cost, windows)
		}
		if len(busy) > 0 {
			t.Fatalf("seed %d: %d busy windows were not cut as others: %v", seed, len(busy), busy)
		}
	}
}

// TestTinyUntilBusy has a service with few samples be cut at a minute, and at once when it
// becomes busy, in the middle of one.
func TestTinyUntilBusy(t *testing.T) {
	s := newShift(t)
	long := Long{Every: every, Times: 6}
	began := s.at
	for i := range 10 {
		n := int64(1)
		if i == 8 {
			n = 100
		}
		s.cut(long, i == 9, time.Millisecond, map[string]int64{"shop": n, "busy": 50})
		s.arrived(t, i+1)
	}
	<-s.Finish(testwait.Longest(t))
	var got []string
	for _, p := range s.parts()["shop"] {
		got = append(got, fmt.Sprintf("%d at %.0f for %.0f", p.N(), p.Start.Sub(began).Seconds(), p.Duration.Seconds()))
	}
	if want := "[6 at 0 for 60 2 at 60 for 20 100 at 80 for 10 1 at 90 for 10]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if n := len(s.parts()["busy"]); n != 10 {
		t.Errorf("%d windows of the other", n)
	}
	if n := len(s.parts()[""]); n != 10 {
		t.Errorf("%d windows say that the machine was watched", n)
	}
	for i, d := range s.delivered {
		if open := d.Open; d.Tiny != 1 && i != 8 || open != 0 && (i == 5 || i == 8 || i == 9) || open != 1 && i < 5 {
			t.Errorf("window %d: %d are tiny, %d go on", i, d.Tiny, open)
		}
	}
}

// TestLongAndAsleep has a machine sleep for minutes while a window of a tiny target goes on, and
// a window be cut long after its edge: neither is part of a long one.
func TestLongAndAsleep(t *testing.T) {
	s := newShift(t)
	long, began, n := Long{Every: every, Times: 6}, s.at, 0
	cut := func(late time.Duration) {
		s.cut(long, false, late, map[string]int64{"shop": 1})
		n++
		s.arrived(t, n)
	}
	cut(0)
	cut(0)
	s.at = s.at.Add(5 * time.Minute)
	cut(0)
	cut(0)
	cut(0)
	cut(20 * time.Second) // beyond the edge
	s.at, s.late = s.at.Add(20*time.Second), 0
	cut(0)
	<-s.Finish(testwait.Longest(t))
	var got []string
	for _, p := range s.parts()["shop"] {
		got = append(got, fmt.Sprintf("%d at %.0f for %.0f", p.N(), p.Start.Sub(began).Seconds(), p.Duration.Seconds()))
	}
	if want := "[2 at 0 for 20 1 at 320 for 10 2 at 330 for 20 1 at 350 for 30 1 at 380 for 10]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestLateBesideLong has a window with a long part come late, and one that could not be cut: each
// counts as late as without.
func TestLateBesideLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay time.Duration
		fails bool
		late  bool
	}{
		{"in time", 9 * time.Second, false, false},
		{"late", 11 * time.Second, false, true},
		{"in time, and the cut fails", 9 * time.Second, true, false},
		{"late, and the cut fails", 11 * time.Second, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShift(t)
			long, now := Long{Every: every, Times: 6}, s.at.Add(time.Minute+c.delay)
			s.now = func() time.Time { return now }
			windows := 6
			for i := range windows {
				if c.fails && i == windows-1 { // the window that goes on ends where it has begun
					now := s.at.Add(c.delay)
					s.now = func() time.Time { return now }
					s.Add(s.line, &Piece{Ends: &profile.Head{}, Last: true, Long: long})
				} else {
					s.cut(long, false, 0, map[string]int64{"shop": 1})
				}
				s.arrived(t, i+1)
			}
			<-s.Finish(testwait.Longest(t))
			last, parts := s.delivered[windows-1], s.parts()["shop"]
			if last.Summary.Length != every || last.Summary.Delay != c.delay || len(parts) != 1 || parts[0].Duration <= every {
				t.Errorf("%+v, %d parts", last.Summary, len(parts))
			}
			var m health.Monitor
			m.Observe(last.Summary)
			if found := health.Find(m.Evaluate(now, health.State{}), health.Late); (found != nil) != c.late {
				t.Errorf("%v", found)
			}
		})
	}
}

// TestLongOfSome has a task that selects targets let one go in the middle of a long window: that
// is no longer than the target was recorded. Windows of others last until the minute ends.
func TestLongOfSome(t *testing.T) {
	for name, want := range map[string]string{"all": "[2 at 0 for 60]", "some": "[1 at 0 for 10 1 at 30 for 30]"} {
		s := newShift(t)
		if name == "some" {
			s.kept = []*Kept{{Means: func(l profile.Labels) bool { return l["service"] != "" }}}
		}
		began := s.at
		for i := range 6 {
			samples := map[string]int64{"other": 1}
			if i == 0 || i == 3 {
				samples["shop"] = 1
			}
			if i > 3 {
				samples["shop"] = 0
			}
			s.cut(Long{Every: every, Times: 6}, false, 0, samples)
			s.arrived(t, i+1)
		}
		<-s.Finish(testwait.Longest(t))
		got := map[string][]string{}
		for service, parts := range s.parts() {
			for _, p := range parts {
				got[service] = append(got[service], fmt.Sprintf("%d at %.0f for %.0f", p.N(), p.Start.Sub(began).Seconds(), p.Duration.Seconds()))
			}
		}
		if fmt.Sprint(got["shop"]) != want || fmt.Sprint(got["other"]) != "[6 at 0 for 60]" {
			t.Errorf("%s are kept: %v, want %s", name, got, want)
		}
	}
}

// TestLongDividesMinutes has windows be as much longer as minutes allow.
func TestLongDividesMinutes(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{
		10 * time.Second: time.Minute, 5 * time.Second: 30 * time.Second, 15 * time.Second: time.Minute, 20 * time.Second: time.Minute, 30 * time.Second: time.Minute,
		time.Minute: time.Minute, time.Hour: time.Hour, 7 * time.Second: 7 * time.Second, time.Second: 6 * time.Second, 4 * time.Second: 20 * time.Second, 0: 0,
	} {
		l := Long{Every: every, Times: 6}
		if got := l.length(); got != want || l.Longer() != (want > every) {
			t.Errorf("windows of %v may be %v, want %v", every, got, want)
		}
	}
}
