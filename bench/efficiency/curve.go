package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// curve is what sampling costs, by rate: CPU time, in cores.
type curve struct {
	Workload, Kernel string
	Hertz, Cores     []float64 // rising rates, and the cost at each
	Accounts         []float64 // the same by what was counted, whatever the workload lost
}

// add adds what was measured at a rate; they come by rising rates.
func (c *curve) add(hz, cores, accounts float64) {
	c.Hertz, c.Cores, c.Accounts = append(c.Hertz, hz), append(c.Cores, cores), append(c.Accounts, accounts)
}

// byAccounts is the curve of these.
func (c *curve) byAccounts() *curve {
	return &curve{Workload: c.Workload, Kernel: c.Kernel, Hertz: c.Hertz, Cores: c.Accounts}
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
	if len(c.Hertz) == 0 || len(c.Hertz) != len(c.Cores) || len(c.Accounts) != len(c.Hertz) || !slices.IsSorted(c.Hertz) {
		return nil, fmt.Errorf("read costs: %s has not two costs for each of rising rates", path)
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

// share is the mean cost of rates that change, and its share of that at a fixed rate.
func (c *curve) share(rates series, reference int) (cores, part float64) {
	cores = c.mean(rates)
	return cores, cores / c.at(float64(reference))
}
