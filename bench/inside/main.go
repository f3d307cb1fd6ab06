// Command inside measures the time a sample takes inside our BPF program, from its own histogram.
//
// Two victims burn CPU at different depths; the difference of their mean times
// over the difference of their mean depths is the cost of a further frame.
// The second before each measurement is left out, so that tables and caches
// are warm.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/test/victims"
)

var (
	rounds = flag.Int("rounds", 7, "interleaved rounds")
	length = flag.Duration("d", 2*time.Second, "length of a measurement")
	hz     = flag.Float64("F", 999, "frequency")
)

func main() { harness.Main(run) }

// load is a victim of one depth.
type load struct {
	name string
	args []string
	path string

	medians, means, depths []float64
}

func run(ctx context.Context, dir string) (err error) {
	loads := []*load{{name: "burn25", args: []string{"1000000"}}, {name: "deep"}}
	for _, l := range loads {
		if l.path, err = victims.Build(dir, l.name, victims.Options{}); err != nil {
			return err
		}
	}
	for range *rounds {
		for _, l := range loads {
			if err := l.measure(ctx); err != nil {
				return err
			}
		}
	}
	harness.Header()
	var t harness.Table
	t.Row("victim", "frames", "median time in BPF", "mean")
	for _, l := range loads {
		t.Row(l.name, fmt.Sprintf("%.1f", stats.Median(l.depths)), harness.Middle(l.medians, "us"), harness.Middle(l.means, "us"))
	}
	further := make([]float64, *rounds)
	for i := range further {
		further[i] = 1000 * (loads[1].means[i] - loads[0].means[i]) / (loads[1].depths[i] - loads[0].depths[i])
	}
	t.Row("a further frame", "1", harness.Middle(further, "ns"), "")
	return t.Print()
}

// measure samples the victim once and keeps the median of its histogram.
func (l *load) measure(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v, err := victims.Start(ctx, l.path, l.args...)
	if err != nil {
		return err
	}
	r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{PIDs: []int{v.PID}}, Event: "cpu-clock",
		Frequency: *hz, Threads: true, MeasureCost: true, Placement: cpu.PlaceCPUs})
	if err != nil {
		return err
	}
	defer r.Close()
	time.Sleep(time.Second)
	warm, err := r.Sampler().Costs()
	if err != nil {
		return err
	}
	time.Sleep(*length)
	c, err := r.Sampler().Costs()
	if err != nil {
		return err
	}
	n := float64(c.Samples - warm.Samples)
	if n < 100 {
		return fmt.Errorf("victim %s: only %v samples", l.name, n)
	}
	l.means = append(l.means, float64((c.Total-warm.Total).Nanoseconds())/n/1000)
	l.depths = append(l.depths, float64(c.Frames-warm.Frames)/n)
	for i := range c.Steps {
		c.Steps[i] -= warm.Steps[i]
	}
	l.medians = append(l.medians, median(c)/1000)
	return nil
}

// median is that of the histogram, in ns, straight lines assumed in each step.
func median(c cpu.Cost) float64 {
	var all, below uint64
	for _, n := range c.Steps {
		all += n
	}
	for i, n := range c.Steps {
		if 2*(below+n) >= all && n > 0 {
			within := (float64(all)/2 - float64(below)) / float64(n)
			return (float64(i) + within) * float64(cpu.CostStep.Nanoseconds())
		}
		below += n
	}
	return 0
}
