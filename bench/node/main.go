// Command node measures what an agent takes of a busy node: a hundred services, each a target of its own, everything sampled and shipped to a real server.
//
//	services in five languages keep the CPUs busy, others idle (work.go)
//	   -> atys server, and atys agent as a process of its own: CPU time, BPF programs, interrupts, memory (measure.go)
//	   -> in turns with an agent whose server is away: the difference is what shipping takes
//	   -> medians of the rounds, and what the agent says of itself (report.go)
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
)

var (
	length    = flag.Duration("d", 2*time.Minute, "length of a measurement")
	settle    = flag.Duration("settle", 40*time.Second, "how long an agent runs before it is measured")
	rounds    = flag.Int("rounds", 7, "measurements of each kind, in turns")
	services  = flag.Int("n", 100, "services, each a target")
	idle      = flag.Int("idle", 100, "processes that do nothing")
	cpus      = flag.Float64("cpus", 1.25*float64(runtime.NumCPU()), "CPUs that the services would take together, if there were as many")
	interrupt = flag.Duration("interrupt", 14*time.Microsecond, "what an empty interrupt costs here: bench/cost measures it")
	keep      = flag.String("keep", "", "file to keep a CPU profile of the last agent in, of its whole life, as atys itself has it")
	more      = flag.String("agent", "", "one more argument for the agent, such as --max-cpu=0.3%")
)

func main() { harness.Main(harness.CountingBPF(run)) }

func run(ctx context.Context, dir string) error {
	switch {
	case *length < 20*time.Second || *settle < 10*time.Second:
		return fmt.Errorf("-d %v -settle %v: windows last 10 s; give 20 s and 10 s or more", *length, *settle)
	case *services < 1 || *rounds < 1:
		return fmt.Errorf("-n %d -rounds %d: want 1 or more", *services, *rounds)
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	work, err := startNode(ctx, dir, *services, *idle, *cpus)
	defer work.wait()
	defer cancel()
	if err != nil {
		return err
	}
	m := measured{}
	for i := range *rounds {
		for _, shipping := range []bool{true, false} {
			one, err := measure(ctx, atys, dir, shipping)
			if err != nil {
				return err
			}
			if err := work.alive(); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d, shipping %v: %.3f%% of a core, %.1f MB\n", i+1, shipping, 100*one.cores(), float64(one.last.Memory())/1e6)
			if shipping {
				m.shipping = append(m.shipping, one)
			} else {
				m.spooling = append(m.spooling, one)
			}
		}
	}
	return m.report()
}
