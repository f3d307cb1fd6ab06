package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// curve is what sampling costs, by rate: CPU time, in cores.
type curve struct {
	Workload, Kernel string
	Hertz, Cores     []float64 // rising rates, and the cost at each
	Slotted          []float64 // the same where windows tell slots apart; none: it was not measured
}

// add adds what was measured at a setting; they come by rising rates.
func (c *curve) add(s setting, cores float64) {
	if s.slotted {
		c.Slotted = append(c.Slotted, cores)
		return
	}
	c.Hertz, c.Cores = append(c.Hertz, s.hertz), append(c.Cores, cores)
}

// slotted is the curve of windows that tell slots apart.
func (c *curve) slotted() (*curve, error) {
	if len(c.Slotted) == 0 {
		return nil, errors.New("costs of windows in slots were not measured (-cost): measure them by cost -slot 1s")
	}
	return &curve{Workload: c.Workload, Kernel: c.Kernel, Hertz: c.Hertz, Cores: c.Slotted}, nil
}

func readCurve(path string) (*curve, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &curve{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("read costs: %w", err)
	}
	if len(c.Hertz) == 0 || len(c.Hertz) != len(c.Cores) || len(c.Slotted) > 0 && len(c.Slotted) != len(c.Hertz) || !slices.IsSorted(c.Hertz) {
		return nil, fmt.Errorf("read costs: %s has not a cost for each of rising rates", path)
	}
	return c, nil
}

func (c *curve) write(path string) error {
	text, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// at is the cost at a rate: on straight lines between those that were measured, and as
// at the nearest beyond them.
func (c *curve) at(hz float64) float64 {
	i, _ := slices.BinarySearch(c.Hertz, hz)
	switch {
	case i == 0:
		return c.Cores[0]
	case i == len(c.Hertz):
		return c.Cores[i-1]
	}
	part := (hz - c.Hertz[i-1]) / (c.Hertz[i] - c.Hertz[i-1])
	return c.Cores[i-1] + part*(c.Cores[i]-c.Cores[i-1])
}

// mean is the mean cost of rates that change.
func (c *curve) mean(rates series) float64 {
	sum, n := 0.0, 0
	for _, repetition := range rates {
		for _, hz := range repetition {
			sum += c.at(hz)
			n++
		}
	}
	return sum / float64(max(n, 1))
}
