package budget

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// How far knobs are turned at once.
const (
	aim     = 0.85 // of the budget, where something is restrained
	fits    = 0.85 // of the budget, that the load may be after something came back
	most    = 0.5  // of the rates is left, where they are lowered: one odd time is not the rule
	roof    = 0.9  // of the memory, above which nothing comes back
	worth   = 0.05 // of the budget: a cause that takes less is let alone
	matters = 0.25 // of the budget: sampling that takes less is not what costs
	lessen  = 0.9  // of a limit: a step that leaves more is none
	// What was taken too much is given back within payback, from half of the budget at
	// most; mostDebt of the budget is the most that is remembered.
	payback, mostDebt = 2 * time.Minute, 2 * time.Minute

	leastPart = 0.05 // of the budget is left to tables and names: both get done in the end

	patience     = 2 // decisions in a row that find room, before something comes back
	mostPatience = 6 // the same, where what came back had to be taken again

	// looseHeap is how much garbage there may be where CPU time is scarce, in percent
	// of what is in use, and roomy how much of the memory may be held for that.
	looseHeap, roomy = 100, 0.5

	shortEvents, longEvents, stepEvents = 100 * time.Millisecond, 400 * time.Millisecond, 4
)

// When to decide. A new program is costly for a moment, whatever the rates.
const (
	Period = 30 * time.Second
	Soon   = 10 * time.Second // where it is far too much, or something is restrained
)

// Longest is how many windows of others one of a tiny target may be: see Limits.Long.
const Longest = 6

// Governor keeps an agent within its budget. Its zero value has none and limits
// nothing.
type Governor struct {
	Budget Budget
	Limits
	For  Scarce // why rates have a cap, or windows are short
	Over bool   // the budget is exceeded, and nothing is left to restrain
	Stop bool   // the same of memory: end the recording that came last, of those for a while

	room     int     // decisions in a row that found room
	worst    float64 // most that one of them found to be taken, in cores
	sampling float64 // and for sampling
	patience int     // how many it takes; 0: as at first
	raised   bool    // rates, at last
	parted   bool    // windows that were fewer, at last
	full     int     // decisions in a row with too much memory
	debt     float64 // core-seconds that were taken too much
	shipped  shippings
}

// Due tells whether so much time is enough to decide by.
func (g *Governor) Due(since time.Duration, l Load) bool {
	if since < Soon {
		return false
	}
	b, cores := g.Budget, l.Cores()
	return since >= Period || g.restrained() && cores <= b.Cores || b.Cores > 0 && cores > 2*b.Cores || b.Memory > 0 && l.Memory > b.Memory
}

// Exceeded tells whether more is taken than the budget allows, of CPU time or of
// memory, with nothing left to restrain.
func (g *Governor) Exceeded() bool { return g.Over || g.Stop }

// Held is what holds now for whoever works: where tables are not limited they may
// still take no more than the whole budget, so that no burst of new programs exceeds
// it for long.
func (g *Governor) Held() (l Limits, waits bool) {
	l, waits = g.Limits, g.Tables > 0
	if !waits {
		l.Tables = g.Budget.Cores
	}
	return l, waits
}

func (g *Governor) restrained() bool { return g.Limits != (Limits{}) || g.Over }

// step is a decision as it is made.
type step struct {
	*Governor
	load  Load
	cores float64
	may   float64 // be taken, of a core: the budget, less what is given back
	now   time.Time
	all   []Decision
}

// Decide takes what an agent took since the last decision.
func (g *Governor) Decide(l Load, now time.Time) []Decision {
	s := step{g, l, l.Cores(), 0, now, nil}
	g.Stop = false
	g.shipped.add(&l)
	b := g.Budget
	g.debt = min(max(g.debt+(s.cores-b.Cores)*l.For.Seconds(), 0), b.Cores*mostDebt.Seconds())
	s.may = max(b.Cores-g.debt/payback.Seconds(), b.Cores/2)
	switch {
	case b.Memory > 0 && l.Memory > b.Memory:
		s.memory()
	case b.Cores > 0 && s.cores > s.may:
		g.full = 0
		s.restrain()
	default:
		g.full = 0
		s.relax()
	}
	return s.all
}

// decide notes one step.
func (s *step) decide(cause string, k Knob, from, to float64, why string) {
	s.all = append(s.all, Decision{s.now, cause, k, from, to, why})
}

// memory drops what can be had again, then shortens windows and lowers rates.
func (s *step) memory() {
	why := fmt.Sprintf("%d MB are held, of %d MB", s.load.Memory/1e6, s.Budget.Memory/1e6)
	s.decide(string(Memory), Caches, 0, 0, why)
	if s.Heap != 0 {
		s.decide(string(Memory), Collector, float64(s.Heap), 0, why)
		s.Heap = 0
	}
	if s.full++; s.full == 1 {
		return
	}
	// what was dropped was not enough
	shortened := !s.Short
	if s.Short = true; shortened {
		s.decide(string(Memory), Windows, 1, 0.5, why)
	}
	s.For = Memory
	if !s.lower(string(Memory), most, why) {
		s.Stop = !shortened
	}
}

// restrain ships fewer windows, and then limits the causes that take most, until the rest fits.
func (s *step) restrain() {
	s.room = 0
	excess := s.cores - aim*s.may
	excess -= s.merge(excess)
	for _, cause := range s.largest() {
		if excess <= worth*s.Budget.Cores && len(s.all) > 0 {
			break
		}
		excess -= s.restrainOne(cause, excess)
	}
	if len(s.all) > 0 || s.Over || s.cores <= s.Budget.Cores {
		return
	}
	s.Over = true
	s.decide(string(s.largest()[0]), None, 0, 0, s.because(s.largest()[0]))
}

// merge ships fewer windows, if that helps, and returns how much less that takes. It comes before
// all other knobs: no sample, name or exact time is lost by it, while each of those makes answers
// less certain. Commands come first. Each of them has a series that ends at once,
// also on the server, and what it was stays in the names of its threads. Longer windows make
// targets known later: they come where that is not enough.
func (s *step) merge(excess float64) (saved float64) {
	least := time.Duration(0)
	if s.Long > 0 {
		least = evidence
	}
	lately, _, _ := s.shipped.latest(least)
	tiny := lately.Tiny
	if brief := lately.perWindow() * float64(lately.Brief); !s.Together && brief >= worth*s.Budget.Cores {
		s.decide(string(cputime.Shipping), Commands, 0, 1, s.because(cputime.Shipping))
		s.Together, saved = true, brief
		tiny = max(tiny-lately.Brief, 0) // nearly all commands have few samples
	}
	enough := saved > 0 && excess-saved <= worth*s.Budget.Cores
	if less := lately.perWindow() * float64(tiny) * (1 - 1.0/Longest); !enough && s.Long == 0 && less >= worth*s.Budget.Cores {
		s.decide(string(cputime.Shipping), Tiny, 0, Longest, s.because(cputime.Shipping))
		s.Long, saved = Longest, saved+less
	}
	if saved > 0 {
		s.shipped = nil
	}
	if saved > 0 && s.parted {
		s.patience, s.parted = min(2*max(s.patience, patience), mostPatience), false
	}
	return saved
}

// part ships as many windows as is usual, if it is known that there is room for them: first those
// of tiny targets are as long as all, then each command has its own.
func (s *step) part(room float64) {
	lately, _, enough := s.shipped.latest(evidence)
	if !enough {
		return
	}
	switch {
	case s.Long > 0 && lately.perWindow()*float64(lately.Tiny) <= room:
		s.decide(string(cputime.Shipping), Tiny, float64(s.Long), 0, s.roomWhy())
		s.Long, s.parted, s.shipped = 0, true, nil
	case s.Long == 0 && s.Together && lately.perWindow()*float64(lately.Brief) <= room:
		s.decide(string(cputime.Shipping), Commands, 1, 0, s.roomWhy())
		s.Together, s.parted, s.shipped = false, true, nil
	}
}

// largest lists causes by what they took, the largest first.
func (s *step) largest() []cputime.Cause {
	causes := cputime.Causes()
	slices.SortStableFunc(causes, func(a, b cputime.Cause) int { return cmp.Compare(s.load.Spent[b], s.load.Spent[a]) })
	return causes
}

// restrainOne limits a cause by so much, if it can, and returns how much less that takes.
func (s *step) restrainOne(cause cputime.Cause, excess float64) (saved float64) {
	spent := s.load.Spent[cause]
	if spent < worth*s.Budget.Cores {
		return 0
	}
	switch cause {
	case cputime.Tables:
		return s.bound(cause, Tables, &s.Tables, excess)
	case cputime.Naming:
		return s.bound(cause, Naming, &s.Naming, excess)
	case cputime.Other: // much of it is the garbage collector's
		b := s.Budget.Memory
		if s.Heap != 0 || b > 0 && float64(s.load.Memory) > roomy*float64(b) {
			return 0
		}
		s.decide(string(cause), Collector, 0, looseHeap, s.because(cause))
		s.Heap = looseHeap
		return spent / 3
	case cputime.Following:
		if s.Events >= longEvents {
			return 0
		}
		next := min(max(shortEvents, s.Events*stepEvents), longEvents)
		s.decide(string(cause), Events, s.Events.Seconds(), next.Seconds(), s.because(cause))
		s.Events = next
		return spent / 2
	case cputime.Sampling:
		if spent < matters*s.Budget.Cores {
			return 0
		}
		s.For = CPU
		can := spent * (1 - s.load.floors()/s.load.rates(s.Cap)) // in later steps, too: others are not restrained for it
		if s.lower(string(cause), max(most, 1-excess/spent), s.because(cause)) {
			return can
		}
	}
	return 0
}

// bound has a cause take no more than a part of a core.
func (s *step) bound(cause cputime.Cause, k Knob, limit *float64, excess float64) (saved float64) {
	spent := s.load.Spent[cause]
	next := max(spent-excess, leastPart*s.Budget.Cores)
	if *limit != 0 && next > lessen**limit {
		return 0
	}
	s.decide(string(cause), k, *limit, next, s.because(cause))
	*limit = next
	return max(spent-next, 0)
}

// because says what a cause took, and all together.
func (s *step) because(cause cputime.Cause) string {
	why := fmt.Sprintf("%s took %s, all together %s, the budget is %s", cause, percent(s.load.Spent[cause]), percent(s.cores), percent(s.Budget.Cores))
	if s.may < s.Budget.Cores*lessen {
		why += fmt.Sprintf(" and %s for now: more was taken before", percent(s.may))
	}
	return why
}

// lower leaves a part of the rates, the fastest being lowered first; false: they
// are as low as may be.
func (s *step) lower(cause string, left float64, why string) bool {
	if s.raised {
		s.patience = min(2*max(s.patience, patience), mostPatience)
	}
	s.room, s.raised = 0, false
	sum := s.load.rates(s.Cap)
	if len(s.load.Asks) == 0 || sum <= s.load.floors()*(1+1e-9) {
		return false
	}
	floor, wanted := math.Inf(1), make([]float64, len(s.load.Asks))
	for i, a := range s.load.Asks {
		floor, wanted[i] = min(floor, a.floor()), a.Hertz
	}
	before := s.Cap
	s.Cap = max(floor, capFor(wanted, left*sum))
	if before != 0 {
		s.Cap = min(s.Cap, before)
	}
	s.decide(cause, Frequency, before, s.Cap, why)
	return true
}

// relax gives back what was restrained, the rate first, where there is room for it.
func (s *step) relax() {
	b := s.Budget
	if s.Over {
		s.Over = false
		s.decide(string(cputime.Other), None, 1, 0, fmt.Sprintf("all together took %s, the budget is %s", percent(s.cores), percent(b.Cores)))
	}
	if s.Limits == (Limits{}) {
		return
	}
	if b.Memory > 0 && float64(s.load.Memory) > roof*float64(b.Memory) || b.Cores > 0 && s.cores > fits*s.may {
		s.room = 0
		return
	}
	if s.room == 0 {
		s.worst, s.sampling = 0, 0
	}
	s.worst, s.sampling = max(s.worst, s.cores), max(s.sampling, s.load.Spent[cputime.Sampling])
	if s.room++; s.room < max(s.patience, patience) {
		return
	}
	s.room = 0
	room := math.Inf(1)
	if b.Cores > 0 {
		room = fits*s.may - s.worst
	}
	s.lengthen()
	room -= s.raise(room)
	room -= s.hasten(room)
	room -= s.collect(room)
	s.release(cputime.Naming, Naming, &s.Naming, room)
	s.release(cputime.Tables, Tables, &s.Tables, room)
	if len(s.all) == 0 { // what makes answers more certain comes first
		s.part(room)
	}
	if s.Limits == (Limits{}) {
		s.For, s.patience, s.raised, s.parted = Nothing, 0, false, false
	}
}

// roomWhy says that there is room.
func (s *step) roomWhy() string {
	if s.Budget.Cores == 0 {
		return "there is room again"
	}
	return fmt.Sprintf("there is room: all together took %s at most, the budget is %s", percent(s.worst), percent(s.Budget.Cores))
}

// lengthen has windows be as long as they are.
func (s *step) lengthen() {
	if s.Short {
		s.Short = false
		s.decide(string(Memory), Windows, 0.5, 1, s.roomWhy())
	}
}

// raise lets rates be as much more of what was asked for as there is room, and
// tells how much that takes. What sampling costs is in proportion to the rates at
// most. The cap is dropped where it is above all that can be asked for before the
// next decision.
func (s *step) raise(room float64) (takes float64) {
	if s.Cap == 0 {
		return 0
	}
	factor := 2.0 // of what costs nothing that can be measured, and after memory was short
	if s.sampling > 0 && !math.IsInf(room, 1) {
		factor = 1 + max(room, 0)/s.sampling
	}
	const step = 1.05 // less is none
	if factor < step {
		return 0
	}
	const mostFactor = 8 // what a rate costs that is far from what was measured is a guess
	factor = min(factor, mostFactor)
	before := s.Cap
	s.Cap *= factor
	s.raised = true
	highest := s.load.Most
	for _, a := range s.load.Asks {
		highest = max(highest, a.Hertz)
	}
	if len(s.load.Asks) == 0 || s.Cap >= highest {
		factor, s.Cap = min(factor, max(highest/before, 1)), 0
	}
	s.decide(string(cputime.Sampling), Frequency, before, s.Cap, s.roomWhy())
	return s.sampling * (factor - 1)
}

// hasten has events be read more often: that costs twice as much, at most.
func (s *step) hasten(room float64) (takes float64) {
	spent := s.load.Spent[cputime.Following]
	if s.Events == 0 || spent > room {
		return 0
	}
	next := s.Events / stepEvents
	if next < shortEvents {
		next = 0
	}
	s.decide(string(cputime.Following), Events, s.Events.Seconds(), next.Seconds(), s.roomWhy())
	s.Events = next
	return spent
}

// collect has garbage be collected as often as is usual.
func (s *step) collect(room float64) (takes float64) {
	spent := s.load.Spent[cputime.Other]
	if s.Heap == 0 || spent > room {
		return 0
	}
	s.decide(string(cputime.Other), Collector, float64(s.Heap), 0, s.roomWhy())
	s.Heap = 0
	return spent
}

// release lets a cause take more, as there is room; as much as is usual where it
// does not take even half of what is much already.
func (s *step) release(cause cputime.Cause, k Knob, limit *float64, room float64) {
	if *limit == 0 || room <= 0 {
		return
	}
	next := *limit + room/2
	switch {
	case math.IsInf(room, 1), next > s.Budget.Cores/2 && s.load.Spent[cause] < *limit/2:
		next = 0
	case next*lessen < *limit:
		return
	}
	s.decide(string(cause), k, *limit, next, s.roomWhy())
	*limit = next
}

// capFor is the cap under which rates add up to a sum: slow ones keep what they
// have, the others share the rest.
func capFor(wanted []float64, sum float64) float64 {
	sorted := slices.Sorted(slices.Values(wanted))
	for i, w := range sorted {
		rest := float64(len(sorted) - i)
		if w*rest >= sum {
			return sum / rest
		}
		sum -= w
	}
	return math.Inf(1)
}
