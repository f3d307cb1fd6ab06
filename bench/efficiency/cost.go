package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/test/victims"
)

// settle is how long the workload has to be itself again, and a new rate to be in force.
const settle = 1500 * time.Millisecond

// logged is how long after a window's end a workload has told of it.
const logged = 8 * time.Second

// costing says how costs are measured.
type costing struct {
	running
	rounds int
	length time.Duration
	slot   time.Duration
	rates  []float64 // rising
}

// measureCosts measures what sampling costs at each rate, in short runs whose order is
// drawn anew in each round, with the workload alone between them.
func measureCosts(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("cost", flag.ExitOnError)
	var c costing
	c.flags(f)
	f.IntVar(&c.rounds, "rounds", 5, "interleaved rounds")
	f.DurationVar(&c.length, "d", 10*time.Second, "length of a run, as long as a window; of the workload alone half of it")
	rates := f.String("rates", fixedRates, "rates")
	f.DurationVar(&c.slot, "slot", time.Second, "length of the slots that windows tell apart, as those of policies do; 0: none")
	out := f.String("o", "", "file to write the costs to, for -cost of replay")
	_ = f.Parse(args) // it exits where it fails
	w, err := c.check()
	if err != nil {
		return err
	}
	if c.rates, err = parseRates(*rates); err != nil {
		return err
	}
	slices.Sort(c.rates)
	if c.rounds < 1 || c.length < 4*time.Second {
		return errors.New("-rounds is 1 or more, -d 4s or more")
	}
	t, err := c.run(ctx, w)
	if err != nil {
		return err
	}
	harness.Header()
	costs, err := c.report(t)
	if err != nil || *out == "" {
		return err
	}
	return costs.write(*out)
}

// span is a stretch of the wall clock, in ns.
type span struct{ from, to int64 }

// taken is what one run took, in cores, but for what the workload lost.
type taken struct {
	own, bpf, interrupts float64
	bytes                float64 // of the window, as it is spooled
	span                 span
}

// meter samples the workload for a while.
type meter interface {
	// measure samples for a while, and tells what that took.
	measure(ctx context.Context, hz float64, length time.Duration) (taken, error)
	Close() error
}

// trial is a run at a rate between two of the workload alone.
type trial struct {
	taken
	before, after span
	lost          float64 // cores: of the workload's, by what it did less
}

// run makes all trials, by rate and round.
func (c *costing) run(ctx context.Context, w workload) ([][]*trial, error) {
	c.load.window = time.Second
	one := c.length + c.length/2 + 3*settle
	c.load.steps = steady(2*time.Duration(c.rounds*len(c.rates))*one + time.Minute)
	v, stop, err := c.start(ctx, w)
	if err != nil {
		return nil, err
	}
	defer stop()
	m, err := c.newMeter(w, v.PID)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	trials, err := c.rush(ctx, m, v)
	if err != nil {
		return nil, err
	}
	if err := harness.Sleep(ctx, logged); err != nil {
		return nil, err
	}
	log, _ := v.Stop() // by a signal: its status says so
	log = log[:bytes.LastIndexByte(log, '\n')+1]
	t, err := readTruth(bytes.NewReader(log), w.hot)
	if err != nil {
		return nil, err
	}
	for _, of := range trials {
		for _, one := range of {
			if err := one.lose(t, c.kernel == ours); err != nil {
				return nil, err
			}
		}
	}
	return trials, nil
}

// rush goes through the rounds.
func (c *costing) rush(ctx context.Context, m meter, v *victims.Victim) ([][]*trial, error) {
	trials := make([][]*trial, len(c.rates))
	r := rand.New(rand.NewPCG(1, 3))
	if _, err := m.measure(ctx, c.rates[len(c.rates)-1], c.length/2); err != nil { // names are read once, and do not count
		return nil, err
	}
	before, err := leave(ctx, c.length/2)
	if err != nil {
		return nil, err
	}
	for round := range c.rounds {
		for _, i := range r.Perm(len(c.rates)) {
			one, err := m.measure(ctx, c.rates[i], c.length)
			if err != nil {
				return nil, fmt.Errorf("at %s: %w", rateName(c.rates[i]), err)
			}
			after, err := leave(ctx, c.length/2)
			if err != nil {
				return nil, err
			}
			if v.Ended() {
				return nil, errors.New("the workload has ended before its time")
			}
			trials[i] = append(trials[i], &trial{taken: one, before: before, after: after})
			before = after
			fmt.Fprintf(os.Stderr, "round %d, %s: own %.2f%%, BPF %.2f%%, interrupts %.2f%%\n", round+1, rateName(c.rates[i]), 100*one.own, 100*one.bpf, 100*one.interrupts)
		}
	}
	return trials, nil
}

// leave leaves the workload alone for a while.
func leave(ctx context.Context, length time.Duration) (span, error) {
	if err := harness.Sleep(ctx, settle); err != nil {
		return span{}, err
	}
	from := time.Now()
	err := harness.Sleep(ctx, length)
	return span{from.UnixNano(), time.Now().UnixNano()}, err
}

// lose finds what the workload did less than alone.
//
// Our own process competes with it for CPUs, which its CPU time tells already: so what
// counts is work in a second of CPU time. Others stop it or run inside it: for them it is
// work in a second.
func (t *trial) lose(of truth, perCPU bool) error {
	speed := func(s span) (work, cores float64) {
		u := of.between(s.from, s.to, int64(time.Second))
		length := float64(s.to - s.from)
		cores = u.sum() / length
		if perCPU {
			return u.done / u.sum(), cores
		}
		return u.done / float64((s.to-s.from)/int64(time.Second)), cores
	}
	before, _ := speed(t.before)
	after, _ := speed(t.after)
	during, cores := speed(t.span)
	if !(before+after > 0 && during > 0) {
		return errors.New("the workload's log has nothing of a run: it is too slow")
	}
	t.lost = (1 - 2*during/(before+after)) * cores
	return nil
}

// report prints the costs.
func (c *costing) report(trials [][]*trial) (*curve, error) {
	costs := &curve{Workload: c.name, Kernel: c.kernel}
	last := len(c.rates) - 1
	price := stats.Median(each(trials[last], func(t *trial) float64 { return t.lost })) / c.rates[last]
	cost := func(i int) func(t *trial) float64 {
		return func(t *trial) float64 { return t.own + c.lost(t, price*c.rates[i]) }
	}
	var table harness.Table
	table.Row("rate", "workload lost, measured", "by the price of a sample", "of it inside BPF", "interrupts, at 14 us", "own CPU time", "cost, of a core", "of the highest rate's", "by accounts", "of the highest rate's", "a window, spooled")
	for i, hz := range c.rates {
		whole, accounts := each(trials[i], cost(i)), each(trials[i], (*trial).accounts)
		costs.add(hz, stats.Median(whole), stats.Median(accounts))
		cell := func(part func(t *trial) float64) string {
			return harness.Middle(each(trials[i], func(t *trial) float64 { return 100 * part(t) }), "%")
		}
		priced := ""
		if c.kernel == ours {
			priced = fmt.Sprintf("%.3g%%", 100*price*hz)
		}
		table.Row(rateName(hz), cell(func(t *trial) float64 { return t.lost }), priced, cell(func(t *trial) float64 { return t.bpf }),
			cell(func(t *trial) float64 { return t.interrupts }), cell(func(t *trial) float64 { return t.own }),
			cell(cost(i)), harness.Ratio(whole, each(trials[last], cost(last))),
			cell((*trial).accounts), harness.Ratio(accounts, each(trials[last], (*trial).accounts)),
			harness.Middle(each(trials[i], func(t *trial) float64 { return t.bytes / 1024 }), " KiB"))
	}
	return costs, table.Print()
}

// lost is what the workload lost in a trial. At low rates that is less than what its
// speed varies by, so for our kernel it is what it lost at the highest rate, in
// proportion, and at least what was spent inside BPF. The interrupts' own account is no
// measurement: so many, at what one took on another machine.
func (c *costing) lost(t *trial, priced float64) float64 {
	if c.kernel == ours {
		return max(priced, t.bpf)
	}
	return t.lost
}

// accounts is what a trial took by what was counted, whatever the workload lost.
func (t *trial) accounts() float64 { return t.own + t.bpf + t.interrupts }

func each(trials []*trial, value func(*trial) float64) []float64 {
	values := make([]float64, len(trials))
	for i, t := range trials {
		values[i] = value(t)
	}
	return values
}
