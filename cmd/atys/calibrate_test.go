package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
)

// timed is a command of scripts: timed FILE HERTZ SECONDS writes a recording, its
// samples' times being kept, of a busy thread and others that are less and less so.
// Every 20 seconds they do something else.
func timed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: timed FILE HERTZ SECONDS")
	}
	hertz, err := strconv.Atoi(args[1])
	ts.Check(err)
	seconds, err := strconv.Atoi(args[2])
	ts.Check(err)
	w := timedWindow(hertz, time.Duration(seconds)*time.Second)
	ts.Check(format.Replace(ts.MkAbs(args[0]), func(to io.Writer) error { return format.Write(to, format.PProf, w, format.Options{}) }))
}

func timedWindow(hertz int, length time.Duration) *profile.Window {
	rng := rand.New(rand.NewPCG(1, 2))
	weight := time.Second / time.Duration(hertz)
	b := profile.NewBuilder(profile.Head{Start: time.Unix(1e9, 0), Duration: length, Design: profile.DesignRandomised, Cost: profile.Cost{BPF: length / 100},
		Types: []profile.ValueType{profile.CPUTime(int64(weight))}})
	for at := time.Duration(0); at < length; at += weight {
		thread := 0
		for thread < 9 && rng.Float64() < 0.25 {
			thread++
		}
		functions := []string{"parse", "read", "idle"}
		if at/(20*time.Second)%2 == 1 {
			functions[0] = "serve"
		}
		function := functions[rng.IntN(2+min(thread, 1))]
		id := b.Thread(profile.Thread{PID: 1, TID: 1 + thread, Process: "shop", Name: fmt.Sprintf("worker-%d", thread)})
		stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: function})}, profile.EndComplete)
		b.Add(profile.Row{Stack: stack, Thread: id, N: 1, Values: []int64{int64(weight)}, Squares: []float64{float64(weight) * float64(weight)}})
		b.AddSample(profile.Sample{Time: at, Thread: id, Stack: stack, Weight: int64(weight)})
	}
	return b.Window()
}

// TestFailedFitProposesNothing says so.
func TestFailedFitProposesNothing(t *testing.T) {
	found := calibrated{Calibration: &calibrate.Calibration{Pruning: &calibrate.Pruning{ErrorFit: calibrate.Goodness{All: 1012.82, BelowP99: 1012.82}}, Unfitted: true}}
	if words := found.pruningWords(); !strings.Contains(words, "No pruning is proposed") {
		t.Errorf("it says %q", words)
	}
}
