// Command efficiency asks what adapting the rate of sampling saves, and what it costs in accuracy: Figures 5 and 7 of the paper of Atys, against what the workload itself says it used.
//
//	record   a workload of many phases (testdata, workload.go) runs by a schedule drawn from a seed (schedule.go),
//	         sampled at 10,000 Hz with the time of each sample -> a folder: samples (pack.go) and truth (truth.go)
//	replay   the samples, thinned at random to each fixed rate and to what each policy asks for, window by window
//	         (thin.go, replay.go) -> shares of each window (estimate.go) -> their errors, paired and compared (score.go)
//	cost     short interleaved runs at each rate -> CPU time taken, by rate (cost.go, curve.go), for -cost of replay
//
// One recording serves all rates and policies, so that what they differ by is not what runs
// differ by; that thinning does what a lower rate would is checked by recordings at lower
// rates (-F), of which replay prints the error beside that of the thinned ones.
//
// Figures 4 and 6, of pruning, are bench/pruning's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"atys.dev/atys/bench/harness"
)

func main() { harness.Main(run) }

// commands are what the first argument can be.
var commands = map[string]func(ctx context.Context, args []string) error{
	"record": record, "replay": replay, "cost": measureCosts,
}

func run(ctx context.Context, dir string) error {
	if len(os.Args) > 1 {
		if command, ok := commands[os.Args[1]]; ok {
			return command(ctx, os.Args[2:])
		}
		return fmt.Errorf("%q: say record, replay or cost", os.Args[1])
	}
	return errors.New("say record, replay or cost; -h after it tells its options")
}
