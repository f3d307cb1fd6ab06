package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/levels"
)

// round is what was found of one stretch of time.
type round struct {
	from, to        time.Time
	spent           spent
	instances       []levels.Share // as the direct node's windows tell
	server, relay   levels.Share   // all instances, added up there
	callers         []*atysv1.FunctionAmount
	callersAtRelay  []*atysv1.FunctionAmount
	self, callsSelf float64 // shares of the function itself, and of its callers themselves
}

// ask asks the server about the round.
func (r *round) ask(ctx context.Context, f *fleet) (err error) {
	a := f.asker(r.from, r.to)
	if r.instances, err = a.ByInstance(ctx, selector(direct)); err != nil {
		return err
	}
	if r.server, err = a.Merged(ctx, selector(direct)); err != nil {
		return err
	}
	if r.relay, err = a.Merged(ctx, selector(through)); err != nil {
		return err
	}
	if r.callers, err = a.Callers(ctx, selector(direct)); err != nil {
		return err
	}
	if r.callersAtRelay, err = a.Callers(ctx, selector(through)); err != nil {
		return err
	}
	top, err := atysv1connect.NewQueryClient(f.server.Client(), f.server.URL()).Top(ctx, &atysv1.TopRequest{Selection: &atysv1.Selection{
		Select: selector(direct), Kind: "cpu", FromUnixNano: r.from.UnixNano(), ToUnixNano: r.to.UnixNano()}})
	if err != nil {
		return err
	}
	for _, function := range top.GetFunctions() {
		share := function.GetSelf().GetShare().GetValue()
		switch name := function.GetFunction(); {
		case name == sought:
			r.self += share
		case strings.HasPrefix(name, business):
			r.callsSelf += share
		}
	}
	return nil
}

// business is what the names of the application's functions that call the library
// begin with.
const business = "RandomGen.generate_UUID_"

// caller is the share of all that is spent in calls of one of these functions.
func caller(functions []*atysv1.FunctionAmount, times string) float64 {
	for _, f := range functions {
		if f.GetFunction() == business+times+"times" {
			return f.GetSelf().GetShare().GetValue()
		}
	}
	return 0
}

// column is a figure of each round.
type column struct {
	head string
	cell func(r *round) string  // as a round has it
	of   func(r *round) float64 // for the median; nil: none
	unit string
}

func report(all []*round) error {
	columns := columnsOf(all[0])
	table := &harness.Table{}
	head := []string{"round"}
	for _, c := range columns {
		head = append(head, c.head)
	}
	table.Row(head...)
	for n, r := range all {
		if len(r.instances) != len(all[0].instances) {
			return fmt.Errorf("round %d has samples of %d instances, the first of %d", n+1, len(r.instances), len(all[0].instances))
		}
		row := []string{fmt.Sprint(n + 1)}
		for _, c := range columns {
			row = append(row, c.cell(r))
		}
		table.Row(row...)
	}
	row := []string{"median"}
	for _, c := range columns {
		if c.of == nil {
			row = append(row, "")
			continue
		}
		values := make([]float64, len(all))
		for i, r := range all {
			values[i] = c.of(r)
		}
		row = append(row, fmt.Sprintf("%.2f%s", stats.Median(values), c.unit))
	}
	table.Row(row...)
	if err := table.Print(); err != nil {
		return err
	}
	return conclude(all)
}

func columnsOf(first *round) (columns []column) {
	interval := func(i stats.Interval) string {
		return fmt.Sprintf("%.2f%% (%.2f to %.2f)", 100*i.Value, 100*i.Low, 100*i.High)
	}
	for at, i := range first.instances {
		columns = append(columns, column{i.Of, func(r *round) string {
			return fmt.Sprintf("%s of %.2f s", interval(r.instances[at].Interval), r.instances[at].CPU.Seconds())
		}, func(r *round) float64 { return 100 * r.instances[at].Value }, "%"})
	}
	columns = append(columns, column{"time-weighted mean", func(r *round) string { return interval(levels.Mean(r.instances).Interval) },
		func(r *round) float64 { return 100 * levels.Mean(r.instances).Value }, "%"})
	for _, level := range []struct {
		name string
		of   func(r *round) levels.Share
	}{{"server", func(r *round) levels.Share { return r.server }}, {"relay", func(r *round) levels.Share { return r.relay }}} {
		columns = append(columns,
			column{"merged at the " + level.name, func(r *round) string { return interval(level.of(r).Interval) }, func(r *round) float64 { return 100 * level.of(r).Value }, "%"},
			column{"less the mean, points", func(r *round) string {
				d := r.difference(level.of(r))
				return fmt.Sprintf("%+.2f (%+.2f to %+.2f)", 100*d.Value, 100*d.Low, 100*d.High)
			}, func(r *round) float64 { return 100 * r.difference(level.of(r)).Value }, ""})
	}
	return append(columns,
		column{"called by 100times / 300times", func(r *round) string {
			return fmt.Sprintf("%.2f / %.2f%%", 100*caller(r.callers, "100"), 100*caller(r.callers, "300"))
		}, nil, ""},
		column{"their own self", func(r *round) string { return fmt.Sprintf("%.2f%%", 100*r.callsSelf) }, func(r *round) float64 { return 100 * r.callsSelf }, "%"},
		column{"agent / relay / server, of a core", func(r *round) string {
			seconds := r.to.Sub(r.from).Seconds() / 100
			return fmt.Sprintf("%.1f / %.1f / %.1f%%", r.spent.agent.Seconds()/seconds, r.spent.relay.Seconds()/seconds, r.spent.server.Seconds()/seconds)
		}, nil, ""})
}

// difference is that of a share from the mean of the instances. At the server they
// are of the same samples, so that the interval is wider than need be.
func (r *round) difference(merged levels.Share) stats.Interval {
	return stats.Difference(levels.Mean(r.instances).Interval, merged.Interval)
}

// conclude says what the rounds together show, and is an error if they do not.
func conclude(all []*round) error {
	var within [2]int
	var few, many, atFew, atMany float64
	found := 0
	for _, r := range all {
		for i, merged := range []levels.Share{r.server, r.relay} {
			if r.difference(merged).Contains(0) {
				within[i]++
			}
		}
		few, many = few+100*float64(r.spent.few), many+300*float64(r.spent.many)
		atFew, atMany = atFew+caller(r.callers, "100")*r.server.CPU.Seconds(), atMany+caller(r.callers, "300")*r.server.CPU.Seconds()
		if calledBy(r.callers) && calledBy(r.callersAtRelay) {
			found++
		}
	}
	fmt.Printf("\nmerged share within the interval of the mean: %d of %d rounds at the server, %d at the relay\n", within[0], len(all), within[1])
	fmt.Printf("%s was called by %s... in %d of %d rounds, and nobody else of the application\n", sought, business, found, len(all))
	if few > 0 && many > 0 {
		fmt.Printf("UUIDs made by 300times for each by 100times: %.2f; CPU time in them: %.2f\n", many/few, atMany/atFew)
	}
	if found < len(all) {
		return fmt.Errorf("in %d rounds the callers are others", len(all)-found)
	}
	for i, level := range []string{"server", "relay"} {
		if 2*within[i] < len(all) {
			return fmt.Errorf("at the %s the merged share is not the mean of the instances", level)
		}
	}
	return nil
}

// calledBy tells whether the callers are the application's functions that are meant,
// and no others; what stands in brackets are stacks that were cut below them.
func calledBy(functions []*atysv1.FunctionAmount) bool {
	found := false
	for _, f := range functions {
		switch name := f.GetFunction(); {
		case strings.HasPrefix(name, business):
			found = true
		case !strings.HasPrefix(name, "["):
			return false
		}
	}
	return found
}
