package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/render"
)

// What the issue asks for.
const floorWhole = 0.97

func (r *recording) report() error {
	fmt.Printf("%v Hz\n\n", r.hz)
	var t harness.Table
	header := []string{"held", "before"}
	for i := range r.storms {
		header = append(header, fmt.Sprintf("after storm %d", i+1))
	}
	t.Row(header...)
	row := func(name string, value func(state) string) {
		cells := []string{name}
		for _, s := range r.states {
			cells = append(cells, value(s))
		}
		t.Row(cells...)
	}
	row("file descriptors", func(s state) string { return fmt.Sprint(s.held.FDs) })
	row("BPF maps", func(s state) string { return fmt.Sprintf("%d, %s", s.held.Maps, mb(s.held.MapBytes)) })
	row("RSS without maps", func(s state) string { return mb(s.held.RSS - s.held.RSSMaps) })
	row("processes tracked, of those running", func(s state) string { return fmt.Sprintf("%d of %d", s.tracked.Processes, s.running) })
	row("mappings, files, rows in the kernel", func(s state) string {
		return fmt.Sprintf("%d, %d, %d", s.tracked.Mappings, s.tracked.Executables, s.tracked.Rows)
	})
	row("events lost, failed processes, tables", func(s state) string {
		return fmt.Sprintf("%d, %d, %d", s.tracked.EventsLost, s.tracked.ProcessErrors, s.tracked.TableErrors)
	})
	if err := t.Print(); err != nil {
		return err
	}
	fmt.Printf("\nfile descriptors without a recording: %d before, %d after\n", r.before, r.after)
	for i, s := range r.storms {
		fmt.Printf("storm %d: %d processes in %.1f s (%.0f a second); our CPU %.2f%% of a core, our BPF programs %.2f%%\n", i+1,
			s.born, s.wall.Seconds(), float64(s.born)/s.wall.Seconds(), 100*s.cpu.Seconds()/s.wall.Seconds(), 100*s.bpf.Seconds()/s.wall.Seconds())
	}
	r.reportSamples()
	return nil
}

func (r *recording) reportSamples() {
	v := r.verdict
	holds := "holds"
	if v.share(true) < floorWhole {
		holds = "does not hold"
	}
	fmt.Printf("processes that lived %v or longer: %d of %d, %d samples (%d more of shorter ones)\n", *lived, v.long, v.born, v.all, v.short)
	fmt.Printf("complete and named: %.2f%% (the floor of %.0f%% %s); without %d samples of just started processes %.2f%%\n",
		100*v.share(true), 100*floorWhole, holds, v.starting, 100*v.share(false))
	if v.starting > 0 {
		fmt.Print("just started, by time since main began:")
		for i, n := range v.ages {
			if i < len(ages) {
				fmt.Printf(" %d up to %v,", n, ages[i])
			} else {
				fmt.Printf(" %d later\n", n)
			}
		}
	}
	reasons := slices.SortedFunc(maps.Keys(v.reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.reasons[b], v.reasons[a]), cmp.Compare(a, b))
	})
	for _, why := range reasons[:min(*top, len(reasons))] {
		fmt.Printf("  %d: %s\n", v.reasons[why], render.Printable(why))
	}
	for _, l := range r.losses.Losses {
		fmt.Printf("of all samples on the machine: %s (%s) %d\n", l.Reason, render.Printable(l.Detail), l.N)
	}
	fmt.Println()
}

func mb(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
