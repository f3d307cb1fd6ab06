package main

import (
	"fmt"
	"strings"

	"atys.dev/atys/bench/harness"
)

// measured is all rounds: in each an agent that ships, then one whose server is away.
type measured struct{ shipping, spooling []once }

func (m measured) report() error {
	harness.Header()
	of := func(value func(*once) float64, unit string) string { return middle(m.shipping, value, unit) }
	share := func(value func(*once) float64) string {
		return of(func(o *once) float64 { return 100 * value(o) }, "% of a core")
	}
	mb := func(value func(*once) int64) string {
		return of(func(o *once) float64 { return float64(value(o)) / 1e6 }, "MB")
	}
	differences := make([]float64, len(m.shipping))
	for i := range m.shipping {
		differences[i] = 100 * (m.shipping[i].user - m.spooling[i].user)
	}
	var t harness.Table
	t.Row("what", "measured", "floor", "goal")
	t.Row("everything: the process, BPF, interrupts", share((*once).cores), "1% of a core", "0.5%")
	t.Row("- user-space CPU, system calls included", share(func(o *once) float64 { return o.user }), "", "")
	t.Row("  - of it shipping: above an agent whose server is away", harness.Middle(differences, "% of a core"), "", "")
	t.Row("- inside BPF, all programs", share(func(o *once) float64 { return o.bpf }), "", "")
	t.Row("- interrupts, "+interrupt.String()+" each", share(func(o *once) float64 { return o.interrupts * interrupt.Seconds() }), "", "")
	t.Row("memory", mb(func(o *once) int64 { return o.last.Memory() }), "150 MB", "80 MB")
	t.Row("- RSS without mapped maps", mb(func(o *once) int64 { return o.last.RSS - o.last.RSSMaps }), "", "")
	t.Row("- BPF maps", mb(func(o *once) int64 { return o.last.MapBytes }), "", "")
	t.Row("CPU before that, start included", of(func(o *once) float64 { return o.startup.Seconds() }, "s"), "", "")
	t.Row("what it says of itself: all", share(func(o *once) float64 { return o.part("user") + o.part("bpf") + o.part("interrupt") }), "", "")
	t.Row("- memory", of(func(o *once) float64 {
		return (o.said[`atys_agent_memory_bytes{part="process"}`] + o.said[`atys_agent_memory_bytes{part="maps"}`]) / 1e6
	}, "MB"), "", "")
	t.Row("- rate", of(func(o *once) float64 { return o.said[`atys_agent_frequency_hertz{event="cpu-clock",task="builtin"}`] }, "Hz"), "", "")
	t.Row("CPUs busy", of(func(o *once) float64 { return 100 * o.busy }, "%"), "", "")
	t.Row("services with samples", of(func(o *once) float64 { return float64(o.targets) }, ""), "", "")
	t.Row("windows, samples a second", fmt.Sprintf("%s, %s", of(func(o *once) float64 { return float64(o.windows) / length.Seconds() }, ""),
		of(func(o *once) float64 { return float64(o.samples) / length.Seconds() }, "")), "", "")
	t.Row("the server's CPU, for one agent", share(func(o *once) float64 { return o.server }), "", "")
	return t.Print()
}

// part is a part of what the agent says it takes, of a core.
func (o *once) part(name string) float64 {
	return o.said[`atys_agent_cpu_seconds_total{part="`+name+`"}`]
}

func middle(all []once, value func(*once) float64, unit string) string {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = value(&all[i])
	}
	return strings.ReplaceAll(harness.Middle(values, unit), "  ", " ")
}
