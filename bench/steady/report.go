package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/stats"
)

func (m measured) report() error {
	harness.Header()
	of := func(value func(steady) float64, unit string) string {
		if len(m.steady) == 0 {
			return ""
		}
		values := make([]float64, len(m.steady))
		for i, s := range m.steady {
			values[i] = value(s)
		}
		return harness.Middle(values, unit)
	}
	mb := func(bytes int64) float64 { return float64(bytes) / 1e6 }
	var t harness.Table
	t.Row("what", "measured", "floor", "goal")
	t.Row("user-space CPU, steady", of(func(s steady) float64 { return 100 * s.user }, "% of a core"), "0.5%", "0.3%")
	t.Row("inside BPF", of(func(s steady) float64 { return 100 * s.bpf }, "% of a core"), "", "")
	t.Row("interrupts, "+interrupt.String()+" each", of(func(s steady) float64 { return 100 * s.interrupts * interrupt.Seconds() }, "% of a core"), "", "")
	t.Row("CPU of the first 10 s", of(func(s steady) float64 { return s.startup.Seconds() }, "s"), "", "")
	t.Row("CPU of ending: naming, writing", of(func(s steady) float64 { return s.finish.Seconds() }, "s"), "", "")
	t.Row("memory", of(func(s steady) float64 { return mb(s.last.Memory()) }, "MB"), "150 MB", "80 MB")
	t.Row("- RSS without mapped maps", of(func(s steady) float64 { return mb(s.last.RSS - s.last.RSSMaps) }, "MB"), "", "")
	t.Row("- BPF maps", of(func(s steady) float64 { return mb(s.last.MapBytes) }, "MB"), "", "")
	t.Row("- RSS without mapped maps, after 10 s", of(func(s steady) float64 { return mb(s.first.RSS - s.first.RSSMaps) }, "MB"), "", "")
	t.Row("peak RSS, mapped maps included", of(func(s steady) float64 { return mb(s.peak) }, "MB"), "", "")
	t.Row("start to every busy process's complete stack, but the JVM's", m.slowest(func(s sighting) bool { return s.name != jvm }), "1.5 s", "0.7 s")
	t.Row("- of the JVM", m.slowest(func(s sighting) bool { return s.name == jvm }), "", "")
	if len(m.node) > 0 {
		t.Row(fmt.Sprintf("unwinding table of node, %d rows", m.rows), harness.Middle(m.node, "s CPU"), "0.4 s", "0.2 s")
	}
	if err := t.Print(); err != nil {
		return err
	}
	if len(m.steady) > 0 {
		fmt.Printf("\nthe last recording: %s\n", strings.TrimSpace(string(m.steady[len(m.steady)-1].output)))
	}
	return m.reportSightings()
}

// jvm is what the JVM's process is called.
const jvm = "java"

// slowest is, over the short recordings, when the last of some busy processes
// had its first complete stack; one that had none is named.
func (m measured) slowest(of func(sighting) bool) string {
	if len(m.starts) == 0 {
		return ""
	}
	var values []float64
	never := map[string]int{}
	for _, seen := range m.starts {
		slow := time.Duration(0)
		for _, s := range seen {
			if !of(s) {
				continue
			}
			if slow = max(slow, s.complete); s.wholes == 0 {
				never[s.name]++
			}
		}
		values = append(values, slow.Seconds())
	}
	text := harness.Middle(values, "s")
	for _, name := range slices.Sorted(maps.Keys(never)) {
		text += fmt.Sprintf("; none of %s in %d of %d", name, never[name], len(m.starts))
	}
	return text
}

// reportSightings lists the busy processes by name.
func (m measured) reportSightings() error {
	if len(m.starts) == 0 {
		return nil
	}
	by := map[string][]sighting{}
	for _, seen := range m.starts {
		for _, s := range seen {
			by[s.name] = append(by[s.name], s)
		}
	}
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), cmp.Compare(a, b))
	})
	fmt.Println()
	var t harness.Table
	t.Row("busy process", "times seen", "of a core", "first sample", "first complete stack", "slowest", "complete")
	for _, name := range names {
		var share, first, complete []float64
		samples, wholes := 0, 0
		for _, s := range by[name] {
			share = append(share, 100*s.share)
			first = append(first, s.sample.Seconds())
			if s.wholes > 0 {
				complete = append(complete, s.complete.Seconds())
			}
			samples, wholes = samples+s.samples, wholes+s.wholes
		}
		whole, slow := "never", ""
		if len(complete) > 0 {
			whole, slow = fmt.Sprintf("%.2f s", stats.Median(complete)), fmt.Sprintf("%.2f s", slices.Max(complete))
		}
		t.Row(name, fmt.Sprint(len(by[name])), fmt.Sprintf("%.0f%%", stats.Median(share)), fmt.Sprintf("%.2f s", stats.Median(first)),
			whole, slow, fmt.Sprintf("%.1f%% of %d", 100*float64(wholes)/max(float64(samples), 1), samples))
	}
	return t.Print()
}
