package cpu

import (
	"testing"
	"time"
)

// busyThreads is a demand for which threads are the best place: others use a CPU, and a few
// threads of the targets run all the time.
var busyThreads = demand{hz: 999, interrupt: 20 * time.Microsecond, others: 1, switches: 100, threads: 2}

// changed is a demand with something else.
func changed(d demand, change func(*demand)) demand {
	change(&d)
	return d
}

// TestMover takes a mover through what happens: births and looks, at seconds since
// it began.
func TestMover(t *testing.T) {
	type step struct {
		at     float64
		births uint64 // so far, at a look
		birth  bool   // is told, instead of a look
		demand demand
		state  residence
		to     Placement // that events move to; PlaceByCost: they stay
	}
	rare := changed(busyThreads, func(d *demand) { d.rare = 0.1 })
	slow := changed(busyThreads, func(d *demand) { d.hz = 99 })
	dear := changed(busyThreads, func(d *demand) { d.others = 0.03 }) // threads cost about as much
	alone := changed(busyThreads, func(d *demand) { d.others = 0 })
	look := func(at float64, births uint64, d demand, state residence, to Placement) step {
		return step{at: at, births: births, demand: d, state: state, to: to}
	}
	birth := func(at float64, state residence, to Placement) step {
		return step{at: at, birth: true, state: state, to: to}
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"calm targets get events of their own after two seconds", []step{
			look(1, 0, busyThreads, guarding, PlaceByCost), look(1.9, 0, busyThreads, guarding, PlaceByCost), look(2, 0, busyThreads, apart, PlaceThreads)}},
		{"births keep events on CPUs", []step{
			look(1, 1, busyThreads, guarding, PlaceByCost), look(2.5, 2, busyThreads, guarding, PlaceByCost), look(4, 2, busyThreads, guarding, PlaceByCost), look(4.5, 2, busyThreads, apart, PlaceThreads)}},
		{"the first birth brings them back, and they wait longer each time", []step{
			look(2, 0, busyThreads, apart, PlaceThreads), birth(3, guarding, PlaceCPUs),
			look(12, 1, busyThreads, guarding, PlaceByCost), look(13, 1, busyThreads, guarding, PlaceByCost), look(22, 1, busyThreads, apart, PlaceThreads),
			birth(23, guarding, PlaceCPUs), look(33, 2, busyThreads, guarding, PlaceByCost), look(43, 2, busyThreads, guarding, PlaceByCost), look(53, 2, busyThreads, apart, PlaceThreads)}},
		{"a birth on CPUs moves nothing", []step{birth(1, guarding, PlaceByCost), look(2.5, 0, busyThreads, guarding, PlaceByCost), look(3, 0, busyThreads, apart, PlaceThreads)}},
		{"threads that run rarely stay on CPUs", []step{look(5, 0, rare, guarding, PlaceByCost), look(60, 0, rare, guarding, PlaceByCost)}},
		{"threads that run rarely by now go back", []step{look(2, 0, busyThreads, apart, PlaceThreads), look(7, 0, rare, guarding, PlaceCPUs)}},
		{"a lower rate goes back", []step{look(2, 0, busyThreads, apart, PlaceThreads), look(7, 0, slow, guarding, PlaceCPUs)}},
		{"a slow one never leaves", []step{look(60, 0, slow, guarding, PlaceByCost)}},
		{"cost alone moves nothing before it is twice as much", []step{
			look(2, 0, busyThreads, apart, PlaceThreads), look(7, 0, dear, apart, PlaceByCost), look(12, 0, alone, guarding, PlaceCPUs)}},
		{"cost keeps from leaving", []step{look(2, 0, alone, guarding, PlaceByCost), look(7, 0, alone, guarding, PlaceByCost)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Unix(1e9, 0)
			var m mover
			m.guard(began, 0)
			for i, s := range c.steps {
				now := began.Add(time.Duration(s.at * float64(time.Second)))
				to := PlaceByCost
				if s.birth {
					if m.born(now) {
						to = PlaceCPUs
					}
				} else if d, moves := m.settle(now, s.births, s.demand); moves {
					to = d.placement
				}
				if to != s.to || m.state != s.state {
					t.Fatalf("step %d, at %v s: moved to %v and is %v, want %v and %v", i, s.at, to, m.state, s.to, s.state)
				}
			}
		})
	}
}

// Who has no choice is never moved.
func TestResidentStays(t *testing.T) {
	var m mover
	now := time.Unix(1e9, 0)
	if m.born(now) {
		t.Error("a birth moved it")
	}
	if _, moves := m.settle(now.Add(time.Hour), 0, busyThreads); moves {
		t.Error("a look moved it")
	}
}

// TestAfford has a budget lower the rate to what it allows, and refuse where the
// lowest is too dear.
func TestAfford(t *testing.T) {
	d := demand{hz: 5000, interrupt: 20 * time.Microsecond, others: 1} // 10% of a core
	for _, c := range []struct {
		name      string
		placement Placement
		budget    float64
		others    float64
		cap, pays float64
		refused   bool
	}{
		{"no budget", PlaceCPUs, 0, 1, 0, 0.1, false},
		{"enough", PlaceCPUs, 0.2, 1, 0, 0.1, false},
		{"half of what it takes", PlaceCPUs, 0.05, 1, 2500, 0.05, false},
		{"nobody else is there", PlaceCPUs, 0.01, 0, 0, 0, false},
		{"only targets are interrupted", PlaceThreads, 0.01, 1, 0, 0, false},
		{"not even the lowest", PlaceCPUs, 0.00001, 1, 1, 0.00002, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := changed(d, func(d *demand) { d.others = c.others })
			p := placed{decision: decision{placement: c.placement}, seen: d}
			if c.placement == PlaceCPUs {
				p.bystanders = d.onCPUs()
			}
			got, err := p.afford(c.budget)
			if (err != nil) != c.refused {
				t.Errorf("error %v", err)
			}
			near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
			if !near(got.cap, c.cap) || !near(got.bystanders, c.pays) {
				t.Errorf("at most %v Hz, others pay %v; want %v, %v", got.cap, got.bystanders, c.cap, c.pays)
			}
			if rate := got.rate(d.hz); c.cap > 0 && (rate != c.cap || got.lowered(d.hz) == "") || c.cap == 0 && (rate != d.hz || got.lowered(d.hz) != "") {
				t.Errorf("%v Hz are had of %v, and it is said: %q", rate, d.hz, got.lowered(d.hz))
			}
		})
	}
}

// TestOwnTimer has a timer that runs while a target does start afresh only after
// enough periods, or with another rate.
func TestOwnTimer(t *testing.T) {
	const mean = time.Millisecond
	timer := ownTimer{base: 1000}
	for _, s := range []struct {
		ran  time.Duration
		base float64
		due  bool
	}{
		{10 * mean, 1000, false}, {49 * mean, 1000, false}, {60 * mean, 1000, true},
		{100 * mean, 1000, false}, {110 * mean, 1000, true}, {111 * mean, 500, true}, {112 * mean, 500, false},
	} {
		if due := timer.due(s.ran, s.base, mean); due != s.due {
			t.Errorf("after %v: due %v, want %v", s.ran, due, s.due)
		}
	}
}

// TestCostOfInterrupt judges by the gaps that interrupts leave: others, longer and
// shorter, do not move it.
func TestCostOfInterrupt(t *testing.T) {
	var gaps []time.Duration
	for i := range 150 {
		gaps = append(gaps, 20*time.Microsecond+time.Duration(i)*10*time.Nanosecond)
	}
	for range 5 {
		gaps = append(gaps, 4*time.Millisecond) // another task ran
	}
	for range 100 {
		gaps = append(gaps, 600*time.Nanosecond)
	}
	cost, err := costOf(gaps, 150)
	if err != nil || cost < 20*time.Microsecond || cost > 22*time.Microsecond {
		t.Errorf("an interrupt costs %v, %v", cost, err)
	}
	if _, err := costOf(gaps[:5], 150); err == nil {
		t.Error("five gaps were enough")
	}
}

// TestInterruptIsMeasured has this machine's be within what is believed of any.
func TestInterruptIsMeasured(t *testing.T) {
	needBPF(t)
	cost, err := measureInterrupt()
	if err != nil {
		t.Fatal(err)
	}
	if cost < cheapInterrupt || cost > dearInterrupt {
		t.Errorf("an interrupt costs %v", cost)
	}
	t.Logf("an interrupt costs %v", cost)
}
