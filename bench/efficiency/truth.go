package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// truth is what a workload says of itself. Instants are of the wall clock, in ns.
type truth struct {
	windows map[int64]used
	changes []int64 // of phases, in order
}

// used is what a window of a workload was used for.
type used struct {
	ns   []float64 // by function, in the order of the workload's
	done float64   // how often it has done its work
}

func (u used) sum() (ns float64) {
	for _, x := range u.ns {
		ns += x
	}
	return ns
}

// shares is the distribution of time among the functions; nil where there was none.
func (u used) shares() []float64 { return distribution(u.ns) }

// distribution divides by the sum; nil where that is nothing.
func distribution(values []float64) []float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if sum <= 0 {
		return nil
	}
	shares := make([]float64, len(values))
	for i, v := range values {
		shares[i] = v / sum
	}
	return shares
}

// readTruth reads a workload's log. A window may come twice: what was late is added up.
func readTruth(r io.Reader, functions []hot) (truth, error) {
	t := truth{windows: map[int64]used{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Window, Change int64
			NS             map[string]float64
			Done           float64
		}
		if err := json.Unmarshal(bytes.TrimSpace(lines.Bytes()), &line); err != nil {
			return t, fmt.Errorf("line %d of the workload's log: %w", n, err)
		}
		switch {
		case line.Change != 0:
			t.changes = append(t.changes, line.Change)
		case line.Window != 0:
			u := t.windows[line.Window]
			if u.ns == nil {
				u.ns = make([]float64, len(functions))
			}
			for i, f := range functions {
				u.ns[i] += line.NS[f.name]
			}
			u.done += line.Done
			t.windows[line.Window] = u
		}
	}
	slices.Sort(t.changes)
	return t, lines.Err()
}

// between adds up whole windows of a stretch of time.
func (t truth) between(from, to, window int64) (sum used) {
	for start, u := range t.windows {
		if start < from || start+window > to {
			continue
		}
		if sum.ns == nil {
			sum.ns = make([]float64, len(u.ns))
		}
		for i, ns := range u.ns {
			sum.ns[i] += ns
		}
		sum.done += u.done
	}
	return sum
}
