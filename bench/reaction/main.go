// Command reaction asks how soon policy auto raises the rate of a service whose hotspot moves, and how often it does so where nothing has.
//
//	services, each of which moves a fifth of its time from one function to the next, at moments
//	of its own (testdata/moving.c) -> atys server and atys agent, with a profile of
//	policy auto -> atys query rates: in which window the raised rate held (moves.go)
//	a steady program, recorded with the time of each sample -> windows, drawn again in blocks,
//	thinned to what the policy asks for -> how many it takes for a change (alarms.go)
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
)

var (
	services = flag.Int("services", 7, "services whose hotspot moves, at once; 0: none")
	moves    = flag.Int("moves", 3, "of each, at most 7: each to a place where it has not been")
	part     = flag.Int("part", 20, "hundredths of the time that move")
	stays    = flag.Duration("stays", 2*time.Minute, "how long a hotspot stays at least, at first and where it has moved to")
	within   = flag.Duration("within", 30*time.Second, "in how long after that it moves, at random")
	length   = flag.Duration("d", 3*time.Minute, "how long a steady program is recorded; 0: not at all")
	windows  = flag.Int("windows", 10_000, "windows that are drawn from it")
	seed     = flag.Uint64("seed", 1, "of all that is drawn")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *moves < 1 || *moves > 7 {
		return fmt.Errorf("-moves %d: there are eight functions, give 1 to 7", *moves)
	}
	if *part < 1 || *part > 25 {
		return fmt.Errorf("-part %d: the function they move from has 26 hundredths: give 1 to 25", *part)
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	program, err := build(ctx, dir)
	if err != nil {
		return err
	}
	harness.Header()
	var t harness.Table
	t.Row("what", "measured", "floor", "goal")
	if *services > 0 {
		if err := measureReaction(ctx, &t, dir, atys, program); err != nil {
			return err
		}
	}
	if *length > 0 {
		if err := measureAlarms(ctx, &t, program); err != nil {
			return err
		}
	}
	return t.Print()
}

// build builds the program, optimised and without frame pointers, as services are.
func build(ctx context.Context, dir string) (string, error) {
	path := dir + "/moving"
	_, err := harness.Run(ctx, "gcc", "-O2", "-fomit-frame-pointer", "-o", path, "bench/reaction/testdata/moving.c")
	return path, err
}
