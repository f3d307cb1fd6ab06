// Command steady measures what recording a whole busy machine takes, from the first second to a steady state.
//
//	pgbench, a loaded node server and a JVM keep the CPUs busy, 300 processes idle (work.go)
//	   -> atys record -a as a process of its own: its CPU time, memory, BPF programs and interrupts
//	   -> short recordings: from their start to the first complete stack of each busy process
//	   -> node's unwinding table, built here
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
)

var (
	length      = flag.Duration("d", time.Minute, "length of the recording")
	rounds      = flag.Int("rounds", 5, "recordings; 0: none")
	starts      = flag.Int("starts", 7, "short recordings that are timed from their start; 0: none")
	startLength = flag.Duration("start-d", 5*time.Second, "length of a short recording")
	tables      = flag.Int("tables", 9, "how often node's table is built")
	idle        = flag.Int("idle", 300, "idle processes")
	hz          = flag.Float64("F", 99, "frequency")
	nice        = flag.Int("nice", 0, "niceness of the recorder, to see what waiting for a CPU costs it")
	interrupt   = flag.Duration("interrupt", 14*time.Microsecond, "what an empty interrupt costs here: bench/cost measures it")
)

// warm is how long the machine works before anything is measured.
const warm = 5 * time.Second

func main() { harness.Main(harness.CountingBPF(run)) }

func run(ctx context.Context, dir string) error {
	if *length < settled+5*time.Second {
		return fmt.Errorf("-d %v: a recording is steady after %v, give it 5 s more", *length, settled)
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	work, err := startMachine(ctx, dir, *idle)
	defer work.wait()
	defer cancel()
	if err != nil {
		return err
	}
	time.Sleep(warm)
	t, err := measure(ctx, atys, dir)
	if err != nil {
		return err
	}
	return t.report()
}

// measured is all there is to report.
type measured struct {
	steady []steady
	starts [][]sighting
	node   []float64 // seconds
	rows   int
}

func measure(ctx context.Context, atys, dir string) (m measured, err error) {
	for range *rounds {
		s, err := measureSteady(ctx, atys, dir)
		if err != nil {
			return m, err
		}
		fmt.Fprintf(os.Stderr, "steady: %.3f%% of a core, %.1f MB\n", 100*s.user, float64(s.last.Memory())/1e6)
		m.steady = append(m.steady, s)
	}
	for range *starts {
		seen, err := measureStart(ctx, atys, dir)
		if err != nil {
			return m, err
		}
		m.starts = append(m.starts, seen)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return m, err
	}
	if node, err = filepath.EvalSymlinks(node); err != nil {
		return m, err
	}
	for range *tables {
		rows, took, err := buildTable(node)
		if err != nil {
			return m, err
		}
		m.rows, m.node = rows, append(m.node, took.Seconds())
	}
	return m, nil
}
