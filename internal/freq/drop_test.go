package freq

import "testing"

// TestDropForgets has the last windows of a stretch be of the next one: what they told
// of how windows differ is forgotten with them.
func TestDropForgets(t *testing.T) {
	s := &stretch{spreads: overdispersions{unknown, unknown}}
	window := func(first float64) tally { return tallyOf([]float64{first, 1000 - first}) }
	for range 5 {
		s.add(window(400))
	}
	want := s.spreads
	s.add(window(600))
	s.add(window(620))
	if s.spreads == want {
		t.Fatal("windows that differ tell nothing")
	}
	s.drop(0)
	s.drop(2)
	if s.spreads != want || s.windows() != 5 {
		t.Errorf("%+v of %d windows, want %+v of 5", s.spreads, s.windows(), want)
	}
	for range mostRecent + 5 {
		s.add(window(400))
	}
	s.drop(mostRecent + 10)
	if len(s.recent) != 0 || len(s.then) != 0 {
		t.Errorf("%d windows and %d spreads are left", len(s.recent), len(s.then))
	}
}
