package budget

import (
	"testing"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// node is a machine whose agent takes something for each window that it ships.
type node struct {
	lasting, tiny, brief int     // targets in each interval of Soon; tiny ones last, and have few samples
	window, sampling     float64 // cores: for a window in each interval, and for samples at the full rate
	every                int     // intervals that a window has; 0: one
	intervals            int     // so far
}

// interval returns what the agent takes in the next interval under the limits of a governor. Long
// windows end together, and each command has its own.
func (n *node) interval(g *Governor) Load {
	n.intervals++
	l := Load{For: Soon, Asks: asks(99)}
	l.Spent = map[cputime.Cause]float64{cputime.Sampling: n.sampling * l.rates(g.Cap) / 99}
	every := max(n.every, 1)
	if n.intervals%every != 0 {
		return l
	}
	brief, times := n.brief*every, max(min(g.Long, Longest/every), 1)
	if g.Together {
		brief = min(brief, 1)
	}
	l.Brief, l.Tiny, l.Windows = n.brief*every, n.tiny+brief, n.lasting
	if n.intervals%(every*times) == 0 {
		if !g.Together {
			brief *= times
		}
		l.Windows += n.tiny + brief
	}
	l.Spent[cputime.Shipping] = n.window * float64(l.Windows)
	return l
}

// decide has a governor decide once it is due.
func (n *node) decide(g *Governor) []Decision {
	sum := Load{Spent: map[cputime.Cause]float64{}}
	for {
		l := n.interval(g)
		was := sum.For
		sum.For, sum.Asks = was+l.For, l.Asks
		for _, cause := range []cputime.Cause{cputime.Shipping, cputime.Sampling} {
			sum.Spent[cause] = (sum.Spent[cause]*was.Seconds() + l.Spent[cause]*l.For.Seconds()) / sum.For.Seconds()
		}
		sum.Shipped.Add(l.Shipped)
		if g.Due(sum.For, sum) {
			return g.Decide(sum, at)
		}
	}
}

// knobs lists what decisions turn.
func knobs(all []Decision) (turned []Knob) {
	for _, d := range all {
		turned = append(turned, d.Knob)
	}
	return turned
}

// TestFewerWindowsComeFirst has windows take too much: commands become one target, then windows
// of tiny targets longer, and no rate is lowered as long as these help.
func TestFewerWindowsComeFirst(t *testing.T) {
	g := &Governor{Budget: Budget{Cores: 0.02}}
	n := node{lasting: 20, tiny: 150, brief: 150, window: 1e-4, sampling: 0.006}
	var turned []Knob
	for range 30 {
		turned = append(turned, knobs(n.decide(g))...)
	}
	if len(turned) != 2 || turned[0] != Commands || turned[1] != Tiny || !g.Together || g.Long != Longest || g.Cap != 0 {
		t.Errorf("%v, %+v", turned, g.Limits)
	}
	n.sampling = 0.1
	if all := n.decide(g); len(all) != 1 || all[0].Knob != Frequency {
		t.Errorf("where they help no more: %v", all)
	}
}

// TestFewerWindowsHelpOrAreLeft has few windows be of commands or tiny targets, or windows cost
// next to nothing: series are as users know them.
func TestFewerWindowsHelpOrAreLeft(t *testing.T) {
	for name, n := range map[string]node{
		"within the budget":   {lasting: 20, tiny: 50, brief: 50, window: 1e-4, sampling: 0.001},
		"few are such":        {lasting: 400, tiny: 5, brief: 5, window: 1e-4, sampling: 0.001},
		"windows are not it":  {lasting: 20, tiny: 150, brief: 150, window: 1e-6, sampling: 0.5},
		"there are no others": {sampling: 0.5},
	} {
		g := &Governor{Budget: Budget{Cores: 0.02}}
		for range 30 {
			if n.decide(g); g.Together || g.Long > 0 {
				t.Fatalf("%s: %+v", name, g.Limits)
			}
		}
	}
}

// TestFewerWindowsComeBack has the load go: rates come first, then windows of tiny targets, then
// commands, each only where what it takes fits. With the load back, they are taken again, and
// then stay longer.
func TestFewerWindowsComeBack(t *testing.T) {
	g := &Governor{Budget: Budget{Cores: 0.02}}
	busy, calm := node{lasting: 20, tiny: 150, brief: 150, window: 1e-4, sampling: 0.2}, node{lasting: 20, tiny: 10, brief: 10, window: 1e-4, sampling: 0.002}
	for range 60 {
		busy.decide(g)
	}
	if !g.Together || g.Long == 0 || g.Cap == 0 {
		t.Fatalf("over the budget: %+v", g.Limits)
	}
	var back []Knob
	until := func() (n int) {
		for ; g.Limits != (Limits{}) && n < 200; n++ {
			for _, d := range calm.decide(g) {
				if !d.Relaxes() {
					t.Errorf("with room: %v", d.String())
				}
				back = append(back, d.Knob)
			}
		}
		return n
	}
	until()
	if n := len(back); n < 3 || back[n-2] != Tiny || back[n-1] != Commands || back[0] != Frequency {
		t.Errorf("back came %v", back)
	}
	half := calm
	half.tiny, half.brief = 70, 70 // all together they would not fit
	busy.decide(g)
	busy.decide(g)
	for range 50 {
		half.decide(g)
	}
	cores := 0.0
	for range Longest {
		l := half.interval(g)
		cores += l.Cores() / Longest
	}
	if cores > g.Budget.Cores {
		t.Errorf("what came back does not fit: %+v take %.3f", g.Limits, cores)
	}
}

// TestFewerWindowsStay has the load stay: what does not fit does not come back, also if windows
// are longer than decisions are apart, and all of it comes back once the load has gone.
func TestFewerWindowsStay(t *testing.T) {
	for every := 1; every <= 3; every++ {
		g := &Governor{Budget: Budget{Cores: 0.02}}
		n := node{lasting: 5, tiny: 150, brief: 150, window: 1e-4 * float64(every), sampling: 0.006, every: every}
		turned := map[Knob]int{}
		for range 300 {
			for _, knob := range knobs(n.decide(g)) {
				turned[knob]++
			}
		}
		if turned[Commands] != 1 || turned[Tiny] != 1 || !g.Together || g.Long == 0 {
			t.Errorf("windows of %d intervals: turned are %v, %+v holds", every, turned, g.Limits)
		}
		n.tiny, n.brief = 15, 15
		for range 60 {
			n.decide(g)
		}
		if g.Limits != (Limits{}) {
			t.Errorf("windows of %d intervals, and the load has gone: %+v holds", every, g.Limits)
		}
	}
}

// TestFewerWindowsAreTold has decisions say in words what they change.
func TestFewerWindowsAreTold(t *testing.T) {
	for want, d := range map[string]Decision{
		"short-lived commands each a target -> one target":       {Knob: Commands, To: 1},
		"short-lived commands one target -> each a target":       {Knob: Commands, From: 1},
		"tiny targets as usual -> windows up to 6 times as long": {Knob: Tiny, To: Longest},
		"tiny targets windows up to 6 times as long -> as usual": {Knob: Tiny, From: Longest},
	} {
		if got := d.Setting(); got != want || d.Relaxes() != (d.To == 0) {
			t.Errorf("%q, relaxes: %v; want %q", got, d.Relaxes(), want)
		}
	}
	if Longest*10*time.Second > time.Minute {
		t.Error("a window of a tiny target is longer than the minute that roll-ups have")
	}
}
