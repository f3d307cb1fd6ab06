package main

import (
	"os"
	"strings"
	"time"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler"
)

// clockVariable names a file that holds by how much a process believes its
// clock to be ahead, such as 1h: tests set clocks by it, and never the machine's.
const clockVariable = "ATYS_TEST_CLOCK"

// wallClock is what a process takes for the time.
type wallClock struct {
	file string // "": this machine's is right
}

func newClock() wallClock { return wallClock{os.Getenv(clockVariable)} }

// ahead is by how much it is wrong.
func (c wallClock) ahead() time.Duration {
	if c.file == "" {
		return 0
	}
	text, err := os.ReadFile(c.file)
	if err != nil {
		return 0
	}
	d, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return d
}

func (c wallClock) now() time.Time {
	if c.file == "" {
		return time.Now()
	}
	return time.Now().Add(c.ahead()).Round(0) // a clock that is set goes on evenly for nobody
}

// record has recordings tell the time by the clock.
func (c wallClock) record(record agent.Record) agent.Record {
	if c.file == "" {
		return record
	}
	return func(w agent.Wanted) (sampler.Sampler, error) {
		s, err := record(w)
		if r, ok := s.(recorder.Instrument); ok {
			return &clocked{r, c, c.ahead()}, nil
		}
		return s, err
	}
}

// clocked is a recording whose windows begin when a clock says.
type clocked struct {
	recorder.Instrument
	clock wallClock
	began time.Duration // by how much it was ahead when the window began
}

func (r *clocked) Cut(e sampler.Edge) ([]*profile.Window, error) {
	windows, err := r.Instrument.Cut(e)
	for _, w := range windows {
		w.Start = w.Start.Add(r.began)
	}
	r.began = r.clock.ahead()
	return windows, err
}
