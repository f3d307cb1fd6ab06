// Command cost measures what a kept sample costs: ours against perf's, by the slope over frequencies.
//
// A fixed amount of work runs alone and under each profiler at each frequency,
// interleaved. Cost is all CPU time above the run alone: of the target, with
// its interrupts and BPF programs, and of the profiler. What a profiler spends
// once (loading programs, reading tables) does not depend on the frequency and
// drops out of the slope.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/victims"
)

var (
	rounds = flag.Int("rounds", 15, "interleaved rounds")
	units  = flag.Int("units", 1500, "work of the target, about a millisecond each")
	own    = flag.Bool("own", false, "measure atys alone, and only the cost of a sample")
	empty  = flag.Int("empty", 0, "internal: run the command at the end under an empty program at this frequency")
)

func main() { harness.Main(run) }

// profiler is one way to profile a command.
type profiler struct {
	name string
	args func(hz int, data string) []string
	hz   []int
	// longer is how much longer the work is than -units: at 1,000 Hz a second
	// has few samples to find their cost by.
	longer int
}

var (
	slopeRates = []int{1000, 4999, 20000}
	dwarfRates = []int{20, 1000} // at 20 Hz for what is spent once
)

// emptyProgram is its place among the profilers.
const emptyProgram = 2

func profilers(atys, self string) []profiler {
	ours := func(format string) func(int, string) []string {
		return func(hz int, data string) []string {
			return []string{atys, "record", "-F", strconv.Itoa(hz), "-o", data + format, "--"}
		}
	}
	perf := func(graph ...string) func(int, string) []string {
		return func(hz int, data string) []string {
			args := []string{"perf", "record", "-e", "cpu-clock", "-F", strconv.Itoa(hz), "-o", data + ".data"}
			return append(append(args, graph...), "--")
		}
	}
	return []profiler{
		{"atys", ours(".pb.gz"), slopeRates, 1},
		{"perf -g", perf("-g"), slopeRates, 1},
		{"empty BPF program", func(hz int, _ string) []string {
			return []string{self, "-empty", strconv.Itoa(hz)}
		}, slopeRates, 1},
		{"atys, naming included", ours(".pb.gz"), dwarfRates, 16},
		{"perf --call-graph dwarf", perf("--call-graph", "dwarf"), dwarfRates, 16},
	}
}

// point is one run: samples taken, and CPU seconds above the run alone.
type point struct{ samples, cost float64 }

func run(ctx context.Context, dir string) error {
	if *empty > 0 {
		return beEmpty(ctx, *empty, flag.Args())
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	victim, err := victims.Build(dir, "burn25", victims.Options{})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	all := profilers(atys, self)
	if *own {
		all = all[:1]
	}
	slopes := make([][]float64, len(all)) // us per sample, by profiler and round
	r := rand.New(rand.NewPCG(1, 2))
	for round := range *rounds {
		if err := oneRound(ctx, r, all, victim, filepath.Join(dir, "profile"), slopes); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d: ", round+1, *rounds)
		for i, p := range all {
			fmt.Fprintf(os.Stderr, "%s %.1f us; ", p.name, slopes[i][round])
		}
		fmt.Fprintln(os.Stderr)
	}
	return report(all, slopes)
}

// oneRound runs everything once, in random order, between two runs alone.
func oneRound(ctx context.Context, r *rand.Rand, all []profiler, victim, data string, slopes [][]float64) error {
	type job struct{ profiler, hz int }
	var jobs []job
	for i, p := range all {
		for _, hz := range p.hz {
			jobs = append(jobs, job{i, hz})
		}
	}
	r.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	points := make([][]point, len(all))
	for _, j := range jobs {
		work := []string{victim, strconv.Itoa(*units * all[j.profiler].longer)}
		alone, err := harness.Run(ctx, work[0], work[1:]...)
		if err != nil {
			return err
		}
		args := append(all[j.profiler].args(j.hz, data), work...)
		spent, err := harness.Run(ctx, args[0], args[1:]...)
		if err != nil {
			return err
		}
		n := float64(j.hz) * alone.CPU.Seconds() // of the empty program, which counts none
		if j.profiler != emptyProgram {
			if n, err = samplesIn(spent.Output); err != nil {
				return fmt.Errorf("%s: %w", all[j.profiler].name, err)
			}
		}
		points[j.profiler] = append(points[j.profiler], point{n, (spent.CPU - alone.CPU).Seconds()})
	}
	for i, ps := range points {
		slopes[i] = append(slopes[i], 1e6*slope(ps))
	}
	return nil
}

// slope is least squares: three points of which the fastest carries most weight.
func slope(points []point) float64 {
	var n, x, y, xx, xy float64
	for _, p := range points {
		n++
		x += p.samples
		y += p.cost
		xx += p.samples * p.samples
		xy += p.samples * p.cost
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

var counts = regexp.MustCompile(`(\d+) samples`)

// samplesIn finds "N samples" in what a profiler prints.
func samplesIn(out []byte) (float64, error) {
	m := counts.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no number of samples in %q", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

func report(all []profiler, slopes [][]float64) error {
	harness.Header()
	var t harness.Table
	t.Row("profiler", "CPU per sample kept", "against", "ratio")
	against := map[string]int{"atys": 1, "atys, naming included": 4}
	for i, p := range all {
		other, ratio := "", ""
		if j, ok := against[p.name]; ok && !*own {
			other, ratio = all[j].name, harness.Ratio(slopes[i], slopes[j])
		}
		t.Row(p.name, harness.Middle(slopes[i], "us"), other, ratio)
	}
	if *own {
		return t.Print()
	}
	above := make([]float64, len(slopes[0]))
	for i := range above {
		above[i] = slopes[0][i] - slopes[emptyProgram][i]
	}
	t.Row("atys above the empty program", harness.Middle(above, "us"), "", "")
	return t.Print()
}

// beEmpty runs a command while a program that does nothing is called at the
// given frequency: what any profiler on this event pays.
func beEmpty(ctx context.Context, hz int, args []string) error {
	work := exec.CommandContext(ctx, args[0], args[1:]...)
	if err := work.Start(); err != nil {
		return err
	}
	r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{PIDs: []int{work.Process.Pid}},
		Event: "cpu-clock", Frequency: float64(hz), Threads: true, Empty: true, Placement: cpu.PlaceCPUs})
	if err != nil {
		return err
	}
	defer r.Close()
	return work.Wait()
}
