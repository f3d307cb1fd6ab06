package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// phases is how many there are in each workload.
const phases = 4

// How a run begins and ends: like a search for the highest rate of requests that a server
// stands, the load rises step by step, and other functions are hot in each.
const (
	lead      = 12 * time.Second // before that, at little load: profilers begin meanwhile
	leadLoad  = 0.1
	rampSteps = 5
	fallSteps = 3
)

// step is a stretch of a run in which the program does the same.
type step struct {
	phase  int
	load   float64 // part of the time that it works
	length time.Duration
}

// schedule is a whole run.
type schedule []step

// plan is what a schedule is drawn by.
type plan struct {
	seed        uint64
	changes     int           // in the middle of the run: its ends have their own
	least, most time.Duration // of a stretch between two of them
	ramp        time.Duration // at the beginning, and at the end
}

func (p plan) check() error {
	switch {
	case p.changes < 0:
		return errors.New("-changes is 0 or more")
	case p.least <= 0 || p.most < p.least:
		return errors.New("-least is more than 0, and -most not less")
	case p.ramp < 0:
		return errors.New("-ramp is 0 or more")
	}
	return nil
}

// draw makes the same schedule of the same plan. Phases recur in a period, as hot
// functions of servers do; how long each lasts is random.
func (p plan) draw() schedule {
	r := rand.New(rand.NewPCG(p.seed, 1))
	next := r.IntN(phases)
	var s schedule
	add := func(load float64, length time.Duration) {
		if length > 0 {
			s = append(s, step{next, load, length.Round(time.Millisecond)})
			next = (next + 1) % phases
		}
	}
	add(leadLoad, lead)
	for i := range rampSteps {
		add(float64(i+1)/(rampSteps+1), p.ramp/rampSteps)
	}
	for range p.changes + 1 {
		add(1, p.least+time.Duration(r.Float64()*float64(p.most-p.least)))
	}
	for i := range fallSteps {
		add(float64(fallSteps-i)/(fallSteps+1), p.ramp/fallSteps)
	}
	return s
}

// steady is a schedule without a change.
func steady(length time.Duration) schedule { return schedule{{0, 1, length}} }

// String is what workloads are told: 0@0.2x12.000 1@1x93.250.
func (s schedule) String() string {
	words := make([]string, len(s))
	for i, p := range s {
		words[i] = fmt.Sprintf("%d@%gx%.3f", p.phase, p.load, p.length.Seconds())
	}
	return strings.Join(words, " ")
}

func (s schedule) length() (sum time.Duration) {
	for _, p := range s {
		sum += p.length
	}
	return sum
}
