package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// task is a program that uses CPU time in short runs.
type task struct {
	name  string
	args  []string // arguments of the victim shortlived; nil: run requests.py instead
	use   float64  // CPUs that one instance uses when alone, roughly
	below bool     // runs are shorter than 1 ms
}

var tasks = []task{
	{name: "threads-0.5ms", args: []string{"threads", "0.5", "1"}, use: 0.3, below: true},
	{name: "threads-5ms", args: []string{"threads", "5", "10"}, use: 0.33},
	{name: "threads-50ms", args: []string{"threads", "50", "50"}, use: 0.5},
	{name: "processes-5ms", args: []string{"processes", "5", "0"}, use: 0.9},
	{name: "processes-15ms", args: []string{"processes", "15", "0"}, use: 0.95},
	{name: "processes-50ms", args: []string{"processes", "50", "0"}, use: 0.97},
	{name: "pool-0.25ms", args: []string{"pool", "0.25", "200", "64"}, use: 0.08, below: true},
	{name: "pool-1ms", args: []string{"pool", "1", "200", "64"}, use: 0.32},
	{name: "python-requests", use: 0.35},
}

// cell is one measurement of the matrix.
type cell struct {
	task task
	hz   float64
	busy int // busy loops that run beside it
}

// String returns the name of a cell, which -cells matches and the results file stores.
func (c cell) String() string {
	beside := "alone"
	if c.busy > 0 {
		beside = fmt.Sprintf("beside %d loops", c.busy)
	}
	return fmt.Sprintf("%s %v Hz %s", c.task.name, c.hz, beside)
}

// within returns the bounds that the ratio must lie in.
func (c cell) within() (low, high float64) {
	if c.task.below {
		return 0.93, 1.05
	}
	return 0.97, 1.03
}

// plan returns the cells to measure.
func plan(rates string, chosen *regexp.Regexp) (all []cell, err error) {
	for text := range strings.SplitSeq(rates, ",") {
		hz, err := strconv.ParseFloat(text, 64)
		if err != nil || hz < 1 {
			return nil, fmt.Errorf("-F %q: want frequencies such as 99,499", rates)
		}
		for _, busy := range []int{0, 2} {
			for _, t := range tasks {
				if c := (cell{t, hz, busy}); chosen.MatchString(c.String()) {
					all = append(all, c)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-cells %q: no cell matches", chosen)
	}
	return all, nil
}

// most is how many CPUs the instances of a task may use together. They have to fit on two.
const most = 1.2

// instances returns how many instances of a task to record at once: enough to collect
// the samples in half of the time limit, and no more, since many instances are easier to
// sample than few.
func (c cell) instances(samples int64, limit time.Duration) int {
	needed := float64(samples) / c.hz / (limit.Seconds() / 2)
	n := math.Ceil(needed / c.task.use)
	return int(min(max(n, 1), max(math.Floor(most/c.task.use), 1)))
}
