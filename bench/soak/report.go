package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
)

func (s *soak) report() error {
	harness.Header()
	var t harness.Table
	t.Row("after", "descriptors", "BPF maps", "RSS without maps", "processes", "mappings, files, rows", "events lost, failed processes, tables", "samples", "without a name", "CPU", "in BPF")
	var last state
	for _, now := range s.states {
		name := now.at.Round(time.Second).String()
		if now.quiet {
			name += ", work ended"
		}
		share := func(part, before time.Duration) string {
			return fmt.Sprintf("%.2f%%", 100*(part-before).Seconds()/(now.at-last.at).Seconds())
		}
		u := now.tracked
		t.Row(name, fmt.Sprint(now.held.FDs), fmt.Sprintf("%d, %.1f MB", now.held.Maps, mb(now.held.MapBytes)),
			fmt.Sprintf("%.1f MB", mb(now.held.RSS-now.held.RSSMaps)), fmt.Sprint(u.Processes),
			fmt.Sprintf("%d, %d, %d", u.Mappings, u.Executables, u.Rows), fmt.Sprintf("%d, %d, %d", u.EventsLost, u.ProcessErrors, u.TableErrors),
			fmt.Sprint(now.samples), fmt.Sprintf("%.2f%%", 100*float64(now.unnamed)/max(float64(now.samples), 1)),
			share(now.held.CPU, last.held.CPU), share(now.held.RunTime, last.held.RunTime))
		last = now
	}
	if err := t.Print(); err != nil {
		return err
	}
	s.reportGrowth()
	fmt.Printf("descriptors without recording and work: %d before, %d after\n", s.before, s.after)
	fmt.Printf("scripts: %d started in %.0f s (%.0f a second), %d ended, %d of them otherwise than they should; %d started more than 1 s late\n",
		s.ended.Started, s.ended.Seconds, float64(s.ended.Started)/s.ended.Seconds, s.ended.Ended, s.ended.Wrong, s.ended.Behind)
	if len(s.ended.broken) == 0 {
		fmt.Println("the JVM and the parent of the Python children ran to the end, and all of these ended as they should")
	}
	for _, b := range s.ended.broken {
		fmt.Println(b)
	}
	slices.SortFunc(s.head.Losses, func(a, b profile.Loss) int { return cmp.Compare(b.N, a.N) })
	for _, l := range s.head.Losses[:min(*top, len(s.head.Losses))] {
		fmt.Printf("%s (%s): %d samples\n", l.Reason, render.Printable(l.Detail), l.N)
	}
	return nil
}

// reportGrowth compares the middle of the work with its end: what the first
// half leaves (tables of files seen, the heap's size) is no leak.
func (s *soak) reportGrowth() {
	var busy []state
	for _, now := range s.states {
		if !now.quiet {
			busy = append(busy, now)
		}
	}
	if len(busy) < 2 {
		return
	}
	half, last := busy[len(busy)/2-1], busy[len(busy)-1]
	minutes := (last.at - half.at).Minutes()
	fmt.Printf("\nfrom %v to %v: descriptors %+d, maps %+d, RSS without maps %+.1f MB (%+.2f MB a minute)\n",
		half.at.Round(time.Second), last.at.Round(time.Second), last.held.FDs-half.held.FDs, last.held.Maps-half.held.Maps,
		mb(last.held.RSS-last.held.RSSMaps-half.held.RSS+half.held.RSSMaps),
		mb(last.held.RSS-last.held.RSSMaps-half.held.RSS+half.held.RSSMaps)/minutes)
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
