package freq

import (
	"math"
	"sync"

	"atys.dev/atys/internal/stats"
)

// stretch is windows during which a program does the same.
type stretch struct {
	cells   *cells
	spreads overdispersions
	known   tally             // of a phase that has returned, and of windows so long ago that nothing changed there
	recent  []tally           // the windows behind that
	then    []overdispersions // before each of them had told how it differs
	ago     int               // windows in known, of this stretch
}

// How many windows are looked at for where a change began.
const mostRecent = 32

// How sure a change has to be: by chance one window in two thousand is taken
// for one, all places together at which it could have begun.
const (
	falseAlarms = 1.0 / 2000
	placeTests  = 12 // that so many places are worth: neighbours tell nearly the same
)

// all is the whole stretch.
func (s *stretch) all() (t tally) {
	t.add(s.known)
	for _, r := range s.recent {
		t.add(r)
	}
	return t
}

func (s *stretch) windows() int { return s.ago + len(s.recent) }

// change tells how many windows ago, that of w included, the program began to do
// something else; 0: it has not.
func (s *stretch) change(w tally) (ago int, found comparison) {
	d, _ := s.spreads.any.value()
	before := tally{}
	before.add(s.known.worth(d))
	recent := make([]tally, len(s.recent))
	for i, r := range s.recent {
		recent[i] = r.worth(d)
		before.add(recent[i])
	}
	after, most := w.worth(d), 0.0
	for m := 1; before.n >= 1; m++ {
		c := compare(after, before)
		if over := c.g - changeLimit(c.freedom); over > most {
			ago, found, most = m, c, over
		}
		if m > len(recent) {
			break
		}
		moved := recent[len(recent)-m]
		after.add(moved)
		before.subtract(moved)
	}
	return ago, found
}

// mostFreedom is that of windows that are pooled: see pooling.read.
const mostFreedom = 2 * maxTop

// changeLimit is what a comparison's G has to be above, to be called a change.
func changeLimit(freedom float64) float64 {
	return changeLimits()[min(int(freedom), mostFreedom)]
}

var changeLimits = sync.OnceValue(func() (limits [mostFreedom + 1]float64) {
	for freedom := range limits {
		limits[freedom] = stats.ChiSquaredAt(falseAlarms/placeTests, float64(freedom))
	}
	limits[0] = math.Inf(1)
	return limits
})

// add makes w a window of the stretch.
func (s *stretch) add(w tally) {
	s.then = append(s.then, s.spreads)
	if before := s.all(); before.n > 0 {
		s.spreads.learn(w, before)
	}
	s.recent = append(s.recent, w)
	if len(s.recent) > mostRecent {
		s.known.add(s.recent[0])
		s.recent, s.then = s.recent[1:], s.then[1:]
		s.ago++
	}
}

// drop takes the last windows out again, with what they have told: they are of another
// stretch.
func (s *stretch) drop(windows int) {
	if windows == 0 {
		return
	}
	left := max(len(s.recent)-windows, 0)
	if left < len(s.then) {
		s.spreads = s.then[left]
	}
	s.recent, s.then = s.recent[:left], s.then[:left]
}
