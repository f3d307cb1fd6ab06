// Command intervals asks whether the 95% intervals of shares hold: of windows with known truth, how many contain it, and how wide are they?
//
//	victims run (several at once share a recording) -> one recording that keeps the time of each sample
//	   -> cut into short windows, a victim's samples apart (truth.Cut)
//	   -> each function's share with its interval, against what the victim logged (score.go)
//
// Windows are cut afterwards so that thousands of them cost one recording: the
// sampler's design does not depend on where windows begin.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/test/truth"
	"atys.dev/atys/test/victims"
)

var (
	windows = flag.Int("windows", 2000, "windows of each victim")
	length  = flag.Duration("d", 500*time.Millisecond, "length of a window; whole steps of 10 ms")
	hz      = flag.Float64("F", 999, "frequency")
	names   = flag.String("victims", "recursive,deep,tailcall,threads50,periodic10ms,mixed,resonant1ms", "victims to record, in this order")
	atOnce  = flag.Int("at-once", 1, "victims that run at the same time; more make fewer samples each where CPUs are short")
	where   = flag.String("placement", "cost", "where events are opened: cost (the sampler decides), cpus or threads")
	fixed   = flag.Bool("fixed", false, "sample at a fixed period instead, to see what random ones are for")
	verbose = flag.Bool("v", false, "print each function too")
)

// lead is what victims run longer than their windows take: recording begins
// after them and ends before.
const lead = 20 * time.Second

var placements = map[string]cpu.Placement{"cost": cpu.PlaceByCost, "cpus": cpu.PlaceCPUs, "threads": cpu.PlaceThreads}

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) (err error) {
	if _, ok := placements[*where]; !ok {
		return fmt.Errorf("-placement %q: choose cost, cpus or threads", *where)
	}
	if *windows < 2 || *atOnce < 1 || *length < 10*time.Millisecond || *length%(10*time.Millisecond) != 0 {
		return errors.New("-windows is 2 or more, -at-once 1 or more, -d a multiple of 10ms")
	}
	var runs []*victim
	for name := range strings.SplitSeq(*names, ",") {
		v := &victim{name: name}
		if v.path, err = victims.Build(dir, name, victims.Options{}); err != nil {
			return err
		}
		runs = append(runs, v)
	}
	for some := range slices.Chunk(runs, *atOnce) {
		if err := together(ctx, some); err != nil {
			return err
		}
	}
	return report(runs)
}

// victim is one program, and how its intervals held.
type victim struct {
	name, path string
	running    *victims.Victim
	placed     string
	score      truth.Score
	losses     []profile.Loss
}

// together records some victims at once.
func together(ctx context.Context, runs []*victim) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	span := time.Duration(*windows+1) * *length // one is lost to alignment
	var pids []int
	for _, v := range runs {
		var err error
		if v.running, err = victims.Start(ctx, v.path, fmt.Sprint((span + lead).Seconds())); err != nil {
			return err
		}
		pids = append(pids, v.running.PID)
	}
	r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{PIDs: pids}, Event: "cpu-clock",
		Frequency: *hz, Threads: true, Timed: true, Fixed: *fixed, Placement: placements[*where]})
	if err != nil {
		return err
	}
	defer r.Close()
	epoch, err := truth.Epoch()
	if err != nil {
		return err
	}
	placed, _ := r.Sampler().Placement()
	whole, err := r.Record(ctx, span, nil)
	if err != nil {
		return err
	}
	for _, v := range runs {
		v.placed, v.losses = placed, whole.Losses
		if err := v.judge(whole, epoch); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d windows, %.2f%% covered\n", v.name, v.score.Windows, 100*v.score.Total.Coverage().Value)
	}
	return nil
}

// judge ends the victim and scores its windows.
func (v *victim) judge(whole *profile.Window, epoch time.Time) error {
	text, err := v.running.Stop()
	if err != nil {
		return err
	}
	log, err := truth.Read(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("victim %s: %w", v.name, err)
	}
	for _, o := range truth.Cut(log.Only(whole), epoch, *length) {
		v.score.Add(log, o)
	}
	return nil
}
