package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/unwind"
)

const (
	recordedHertz = 4999
	piece         = time.Second // of the recording
	blockWindows  = 3           // that are drawn together: what drifts within half a minute stays
)

// measureAlarms records a program that does the same all the time, and has the policy
// choose rates of windows that are made of it.
func measureAlarms(ctx context.Context, t *harness.Table, program string) error {
	pieces, err := recordSteady(ctx, program)
	if err != nil {
		return err
	}
	for _, o := range []freq.Options{
		{Policy: freq.Auto, Min: 19, Max: 499, Width: 0.02},
		{Policy: freq.Auto, Min: 19, Max: 4999, Width: 0.005},
		{Policy: freq.Auto, Min: 99, Max: 99},
	} {
		o.Fill()
		alarms := draw(pieces, o)
		t.Row(fmt.Sprintf("changes found in %d windows of a steady program, %v to %v Hz, width %v", *windows, o.Min, o.Max, o.Width),
			fmt.Sprintf("%.2f per 1,000", 1000*float64(alarms)/float64(*windows)), "2", "1")
	}
	return nil
}

// recordSteady gives what was running in each piece of the recording.
func recordSteady(ctx context.Context, program string) (pieces []map[string]float64, err error) {
	never := strconv.FormatInt((24 * time.Hour).Milliseconds(), 10)
	c := exec.CommandContext(ctx, program, "1000", strconv.Itoa(*part), never)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}()
	r, err := recorder.Start(recorder.Setup{Rows: unwind.MaxRows}, recorder.Options{Targets: recorder.Targets{PIDs: []int{c.Process.Pid}}, Event: "cpu-clock",
		Frequency: recordedHertz, Placement: cpu.PlaceCPUs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for range int(*length / piece) {
		w, err := r.Record(ctx, piece, nil)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, running(w))
	}
	return pieces, nil
}

// running counts what was running itself.
func running(w *profile.Window) map[string]float64 {
	counts := map[string]float64{}
	for _, r := range w.Rows.All() {
		counts[leaf(w, r.Stack)] += float64(r.N)
	}
	return counts
}

func leaf(w *profile.Window, id profile.StackID) string {
	stack := w.Stacks[id]
	if len(stack.Locations) == 0 {
		return "[" + stack.End.String() + "]"
	}
	return w.Frames(stack.Locations[0])[0].Function
}

// draw has the policy see windows of the recording, in blocks from anywhere, each
// thinned to the rate that it had asked for.
func draw(pieces []map[string]float64, o freq.Options) (alarms int) {
	rng := rand.New(rand.NewPCG(*seed, 2))
	perWindow := int(window / piece)
	policy := freq.New(o)
	now, next := o.Max, o.Max
	at := 0
	for i := range *windows {
		if i%blockWindows == 0 {
			at = rng.IntN(len(pieces) - blockWindows*perWindow + 1)
		}
		w := freq.Window{Start: time.Unix(0, 0).Add(time.Duration(i) * window), Length: window, Hertz: now}
		sums := map[string]float64{}
		for _, p := range pieces[at : at+perWindow] {
			for name, n := range p {
				sums[name] += n
			}
		}
		at += perWindow
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			if n := thin(rng, sums[name], now/recordedHertz); n > 0 {
				w.Functions = append(w.Functions, freq.Function{Name: name, N: n})
			}
		}
		d := policy.Next(w)
		if d.Reason == freq.Changed || d.Reason == freq.Returned {
			alarms++
		}
		now, next = next, d.Hertz
	}
	return alarms
}

// thin keeps each of n samples with a probability.
func thin(rng *rand.Rand, n, keep float64) float64 {
	if keep >= 1 {
		return n
	}
	if mean := n * keep; mean > 1000 && n*(1-keep) > 1000 {
		return math.Round(mean + math.Sqrt(mean*(1-keep))*rng.NormFloat64())
	}
	kept := 0.0
	for range int(n) {
		if rng.Float64() < keep {
			kept++
		}
	}
	return kept
}
