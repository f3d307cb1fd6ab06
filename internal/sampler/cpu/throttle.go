package cpu

import (
	"fmt"

	"atys.dev/atys/internal/proc"
)

// mostDrawn is how much faster than the base rate a drawn period may be.
const mostDrawn = 2

// throttled tells, in words, where the kernel takes fewer samples than asked
// for: it stops an event that is faster than it allows until its next tick. It
// lowers what it allows by itself where interrupts have taken it too long.
func throttled(allowed int, hz float64) string {
	if allowed <= 0 || mostDrawn*hz <= float64(allowed) {
		return ""
	}
	return fmt.Sprintf("the kernel throttles samples: it allows %d a second, and %.0f Hz with periods drawn at random needs %.0f: run \"sysctl kernel.perf_event_max_sample_rate=%.0f\", or lower the frequency",
		allowed, hz, mostDrawn*hz, mostDrawn*hz)
}

// throttling tells it of the window that ends now.
func (s *Sampler) throttling() string {
	if !s.options.Event.Clock {
		return ""
	}
	allowed, err := proc.Machine{}.MaxSampleRate()
	if err != nil {
		s.log.Debug("read the most samples that are allowed", "error", err)
		return ""
	}
	_, hz, _ := s.events.rates()
	return throttled(allowed, hz)
}
