package rates

import (
	"testing"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// of is a window of an instance, from so long after noon on.
func of(instance string, after, lasting time.Duration) store.Window {
	return store.Window{Series: profile.Labels{"service": "shop", "instance": instance}, Head: profile.Head{Task: "p", Start: noon.Add(after), Duration: lasting}}
}

// TestWhoIsWaitedFor has a and b send windows, and then others: whose next ones are
// waited for, and whose are all of it.
func TestWhoIsWaitedFor(t *testing.T) {
	const ms = time.Millisecond
	passedOn := of("", length, length) // by a relay, which has added them up
	passedOn.Contains = []store.Part{{Series: of("a", 0, 0).Series}, {Series: of("b", 0, 0).Series}}
	for name, test := range map[string]struct {
		windows  []store.Window
		complete bool
	}{
		"both":                            {[]store.Window{of("a", length, length), of("b", length, length)}, true},
		"one":                             {[]store.Window{of("b", length, length)}, false},
		"one twice":                       {[]store.Window{of("b", length, length), of("b", length, length)}, false},
		"both and more":                   {[]store.Window{of("a", length, length), of("c", length, length), of("b", length, length)}, true},
		"one late, one early":             {[]store.Window{of("a", length+900*ms, length), of("b", length-900*ms, length)}, true},
		"one in two":                      {[]store.Window{of("a", length, length), of("b", length, length/2), of("b", length+length/2, length/2)}, true},
		"the first half of one":           {[]store.Window{of("a", length, length), of("b", length, length/2)}, false},
		"one that began later":            {[]store.Window{of("a", length, length), of("b", length+9*time.Second, time.Second)}, true},
		"added up by a relay":             {[]store.Window{passedOn}, true},
		"those of the second after it":    {[]store.Window{of("a", 2*length, length), of("b", 2*length, length)}, false},
		"what was late of the one before": {[]store.Window{of("a", length, length), of("b", length, length), of("d", 0, length)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			at := noon.Add(length)
			r := New(func() time.Time { return at }, nil)
			r.profiles["p"] = &adaptive{name: "p", window: length, options: freq.Options{Policy: freq.Atys}}
			r.Note([]store.Window{of("a", 0, length), of("b", 0, length)})
			c := r.courses[serviceKey{"p", "shop"}]
			if c.complete() {
				t.Error("who there is nobody knows yet, and it is complete")
			}
			r.advance(c)
			at = noon.Add(2 * length)
			r.Note(test.windows)
			if c.complete() != test.complete {
				t.Errorf("complete is %v", c.complete())
			}
			held := 0
			for _, a := range c.came {
				held += len(a.series)
			}
			if r.series != held {
				t.Errorf("%d series are counted, and %d are held", r.series, held)
			}
		})
	}
}

// TestOldWindowsBeginNothing has windows come that waited in a spool, and ones of a
// time that has not come.
func TestOldWindowsBeginNothing(t *testing.T) {
	for after, begins := range map[time.Duration]bool{-time.Hour: false, -2 * length: false, -length: true, 0: true, 3 * length: false} {
		r := New(func() time.Time { return noon }, nil)
		r.profiles["p"] = &adaptive{name: "p", window: length}
		r.Note([]store.Window{of("a", after, length)})
		if begun := len(r.courses) > 0; begun != begins {
			t.Errorf("a window of %v from now has begun something: %v", after, begun)
		}
	}
}

// TestTake has decisions move a rate, or leave it and its reason as they are.
func TestTake(t *testing.T) {
	c := &course{adaptive: &adaptive{options: freq.Options{Policy: freq.Auto}}}
	r := New(time.Now, nil)
	for i, step := range []struct {
		decided freq.Decision
		moved   bool
	}{
		{freq.Decision{Hertz: 999, Reason: freq.Began}, true},
		{freq.Decision{Hertz: 999, Reason: freq.Began, Why: "in other words"}, false},
		{freq.Decision{Hertz: 999, Reason: freq.Stays}, false},
		{freq.Decision{Hertz: 990, Reason: freq.Steady}, true},
		{freq.Decision{Hertz: 980, Reason: freq.Steady}, false},
		{freq.Decision{Hertz: 970, Reason: freq.Steady}, true}, // of 990
		{freq.Decision{Hertz: 970, Reason: freq.Few}, false},
		{freq.Decision{Hertz: 970, Reason: freq.Changed}, true},
		{freq.Decision{Hertz: 500, Reason: freq.Stays}, true},
	} {
		before := c.rate
		r.take(c, step.decided)
		if moved := c.rate != before; moved != step.moved || c.moved != (moved || c.moved) {
			t.Errorf("decision %d: the rate is %+v, and was %+v", i, c.rate, before)
		}
	}
}
