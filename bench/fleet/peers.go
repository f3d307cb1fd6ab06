package main

import (
	"fmt"
	"io"
	"math"

	"atys.dev/atys/bench/harness"
)

// peer is a server that was measured under the load that measure makes: as many
// instances, each of which sends a window of 801 rows, 26.7 deep, of about 2,200
// functions, every 10 s. Of what was not told it has 0.
type peer struct {
	name         string
	mean, peak   float64 // MiB of memory
	cores        float64
	p50, p99     float64 // ms from send to answer
	disk         float64 // bytes a window
	service, one float64 // ms to a flame graph of the largest service, and of an instance
	lost         string  // of what it had acknowledged, on kill -9 after a minute of load
}

// peers are what a study of servers found, by instances: Pyroscope 3fe6a457a of 2026-08-21 and
// Parca 3b5647cd9 of 2026-07-27, on two CPUs; 10 minutes of 100, 5 of 1,000. Their
// flame graphs are of 10 and of 5.7 minutes. Parca did not stand 1,000: it was stopped
// after 2.4 minutes, and its figures are those of a run's first 75 s.
var peers = map[int][]peer{
	100: {
		{"Pyroscope, ingesters (v1)", 339, 424, 0.124, 12, 43, 6900, 58, 28, "all"},
		{"Pyroscope, segments (v2)", 171, 397, 0.181, 270, 520, 163_000, 330, 107, "0"},
		{"Parca, with its log", 1353, 2732, 0.380, 11, 56, 81_200, 7100, 3000, "0"},
	},
	1000: {
		{"Pyroscope, ingesters (v1)", 714, 1033, 1.05, 16, 314, 4400, 149, 23, "all"},
		{"Pyroscope, segments (v2)", 1917, 4992, 1.10, 563, 22_600, 56_600, 731, 47, "0"},
		{"Parca, with its log", 3377, 7422, 1.78, 349, 5400, 73_600, 0, 0, "0"},
	},
}

// compare prints how many times less each line took here than where peers were
// measured with as many instances.
func compare(w io.Writer, all []*measured) error {
	for _, m := range all {
		there := peers[m.instances]
		if there == nil {
			continue
		}
		if due := m.instances * int(*length/windowLength); m.seen.windows() < due*9/10 {
			fmt.Fprintf(w, "\n%d instances: %d windows of %d came: the machine is too busy, or the server too slow, and what this took cannot be compared\n", m.instances, m.seen.windows(), due)
			continue
		}
		table := &harness.Table{}
		head := []string{fmt.Sprintf("%d instances", m.instances), "atys"}
		for _, p := range there {
			head = append(head, p.name)
		}
		table.Row(head...)
		windows := float64(max(m.seen.windows(), 1))
		for _, line := range []struct {
			name, unit string
			here       float64
			of         func(p peer) float64
		}{
			{"memory, mean", "MiB", float64(m.server.mean) / (1 << 20), func(p peer) float64 { return p.mean }},
			{"memory, peak", "MiB", float64(m.server.peak) / (1 << 20), func(p peer) float64 { return p.peak }},
			{"CPU", "cores", m.server.cores, func(p peer) float64 { return p.cores }},
			{"sent to answered, p50", "ms", milliseconds(quantile(m.seen.all(), .5)), func(p peer) float64 { return p.p50 }},
			{"p99", "ms", milliseconds(quantile(m.seen.all(), .99)), func(p peer) float64 { return p.p99 }},
			{"disk, a window", "B", float64(m.disk) / windows, func(p peer) float64 { return p.disk }},
			{"flame graph of the largest service", "ms", milliseconds(m.service), func(p peer) float64 { return p.service }},
			{"of an instance", "ms", milliseconds(m.one), func(p peer) float64 { return p.one }},
		} {
			row := []string{line.name, figure(line.here) + " " + line.unit}
			for _, p := range there {
				row = append(row, times(line.here, line.of(p)))
			}
			table.Row(row...)
		}
		row := []string{"acknowledged and lost", fmt.Sprintf("%d of %d, not killed", m.lost, m.seen.windows())}
		for _, p := range there {
			row = append(row, p.lost+" on kill -9")
		}
		table.Row(row...)
		fmt.Fprintln(w)
		if err := table.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// figure is a number in three digits, of large ones all.
func figure(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// times says how many times better or worse than a peer's less is.
func times(here, there float64) string {
	switch {
	case there == 0 || here == 0 || math.IsNaN(here):
		return "-"
	case here <= there:
		return fmt.Sprintf("%s: %.1f times better", figure(there), there/here)
	}
	return fmt.Sprintf("%s: **%.1f times worse**", figure(there), here/there)
}
