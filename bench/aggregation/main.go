// Command aggregation runs the Atys paper's RandomGen (4.2) as instances of one service, and asks whether what is added up is the truth of all of them.
//
//	JVMs that make 100 and 300 UUIDs a request, under Poisson load (load.go)
//	   -> two agents sample them: one's windows go to the server as they are, the other's through a relay that adds up (fleet.go)
//	   -> the share of UUID.randomUUID in each instance, in all at the server, in all at the relay,
//	      against the mean of the instances' weighted by exact CPU time; who of the application calls it (report.go)
//
// It needs root, java and javac.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
)

const (
	service = "randomgen"
	sought  = "java.util.UUID.randomUUID"
)

var (
	rounds    = flag.Int("rounds", 7, "how often, one round after another")
	length    = flag.Duration("d", 15*time.Second, "length of a round")
	warm      = flag.Duration("warm", 15*time.Second, "load the instances for so long before the first")
	frequency = flag.Int("F", 499, "samples a second")
	rate      = flag.Float64("rate", 150, "requests a second of each instance, on average")
	mix       = flag.String("mix", "0,1", "of each instance: how likely a request is for 300 UUIDs, and not for 100")
	seed      = flag.Uint64("seed", 1, "of the requests' intervals and kinds")
	java      = flag.String("java", "java", "the `program` that runs them")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	var often []float64
	for _, text := range strings.Split(*mix, ",") {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p >= 0 && p <= 1) {
			return fmt.Errorf("-mix %q: numbers from 0 to 1 with commas between them, one for each instance", *mix)
		}
		often = append(often, p)
	}
	if *rounds < 1 || *length < 2*window || *rate <= 0 {
		return errors.New("-rounds is 1 or more, -d 2s or more, -rate more than 0")
	}
	if _, err := harness.Run(ctx, "javac", "-encoding", "UTF-8", "--release", "11", "-g", "-d", dir, "bench/aggregation/testdata/RandomGen.java"); err != nil {
		return err
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	f, err := startFleet(ctx, atys, dir)
	if err != nil {
		return err
	}
	defer f.kill()
	all, err := measure(ctx, f, dir, often)
	if err != nil {
		return err
	}
	harness.Header()
	return report(all)
}

// measure loads the instances, and asks once all is there.
func measure(ctx context.Context, f *fleet, dir string, often []float64) (all []*round, err error) {
	loading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var instances []*instance
	defer func() {
		stop()
		running.Wait()
		for _, i := range instances {
			_ = i.command.Wait() // killed: its status says so
		}
	}()
	for n, p := range often {
		i, err := startInstance(loading, *java, dir, "jvm-"+strconv.Itoa(n+1), p)
		if err != nil {
			return nil, err
		}
		instances = append(instances, i)
		running.Go(func() { i.load(loading, *rate, *seed+uint64(n)) })
	}
	if err := harness.Sleep(ctx, time.Until(time.Now().Add(*warm).Truncate(window).Add(window))); err != nil {
		return nil, err
	}
	before, err := f.spent(instances)
	if err != nil {
		return nil, err
	}
	for range *rounds {
		r := &round{from: before.at, to: before.at.Add(*length)}
		if err := harness.Sleep(ctx, time.Until(r.to)); err != nil {
			return nil, err
		}
		after, err := f.spent(instances)
		if err != nil {
			return nil, err
		}
		r.spent = after.less(before)
		all, before = append(all, r), after
		before.at = r.to
	}
	if err := f.asker(all[0].from, before.at).Settled(ctx, time.Minute, selector(direct), selector(through)); err != nil {
		return nil, err
	}
	for _, r := range all {
		if err := r.ask(ctx, f); err != nil {
			return nil, err
		}
	}
	for _, i := range instances {
		if n := i.mistaken.Load(); n > 0 {
			fmt.Fprintf(os.Stderr, "%s did not answer %d requests\n", i.name, n)
		}
		if n := i.late.Load(); n > 0 {
			fmt.Fprintf(os.Stderr, "%d requests were not sent to %s, which had %d to answer\n", n, i.name, flights)
		}
	}
	return all, nil
}

// folder makes a directory for one of the fleet.
func folder(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.Mkdir(path, 0o700)
}
