package freq

import (
	"testing"
	"time"
)

// TestResume goes on at the rate of another, within what may be.
func TestResume(t *testing.T) {
	for name, want := range map[string][]float64{Atys: {50, 40, 32}, Auto: {50, 50, 50}} {
		o := Options{Policy: name, Min: 10, Max: 100}
		o.Fill()
		window := Window{Start: time.Unix(0, 0), Length: time.Second, Hertz: 50, Functions: []Function{{"f", leastSamples / 10}}}
		if name == Atys {
			o.Streak = 1
		}
		p := Resume(o, 50)
		for i, want := range want {
			if d := p.Next(window); d.Hertz != want {
				t.Errorf("%s, window %d: %+v, want %g Hz", name, i, d, want)
			}
		}
		if d := Resume(o, 1000).Next(window); d.Hertz != o.Max {
			t.Errorf("%s, above what may be: %+v", name, d)
		}
	}
}
