package render

import (
	"fmt"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// Coverage is how much of what was asked for an answer holds.
type Coverage struct {
	Samples     int64
	CPU         time.Duration // that was used, by the kernel's account
	Cost        time.Duration // of profiling it
	Losses      []profile.Loss
	Damaged     int // parts of the store that could not be read
	Doubtful    int // windows whose clocks were not known well
	Tasks       []TaskCoverage
	Overlapping []string // profiles that recorded the same at the same time
	Pushed      int      // instances whose windows no agent recorded
	PushedMore  bool     // or more
	PrunedShare float64  // by how much shares can be off, since threads were pruned
	Asked       Span
	Dropped     []Span // times that retention has deleted
	Nodes       []NodeCoverage
}

// Span is a time from a moment until another.
type Span struct{ From, To time.Time }

// TaskCoverage is of a profile that recorded some of the eligible instances.
type TaskCoverage struct {
	Task      string
	Instances profile.Instances
}

// NodeCoverage is when a node was watched, by one task.
type NodeCoverage struct {
	Node, Task       string
	First, Last      time.Time
	Watched          time.Duration
	Missing, Stopped []Span
	Silent           bool
}

// mostSpans is how many times of one kind are listed.
const mostSpans = 3

// Words words what an answer lacks, with times of a place. The line names what
// makes it less than what was asked for; the items explain each.
func (c Coverage) Words(place *time.Location) Lacks {
	words := Losses(c.Losses, c.Samples, c.CPU)
	say := func(short, format string, arguments ...any) {
		if short != "" && words.Line != "" {
			words.Line += "; "
		}
		words.Line += short
		words.Loud = words.Loud || short != ""
		words.Items = append(words.Items, fmt.Sprintf(format, arguments...))
	}
	if c.Damaged > 0 {
		say(counted(int64(c.Damaged), "damaged parts")+" left out", "%d parts of the store are damaged and left out", c.Damaged)
	}
	for _, t := range c.Tasks {
		some := fmt.Sprintf("%d of %d", t.Instances.Recorded, t.Instances.Eligible)
		say(some+" instances", "profile %s: %s eligible instances were recorded, chosen at random", Printable(t.Task), some)
	}
	if len(c.Overlapping) > 0 {
		say("overlapping profiles", "profiles %s recorded the same at the same time: what several of them saw counts more than once (--task of \"atys query\" chooses one)",
			Printable(strings.Join(c.Overlapping, ", ")))
	}
	if c.Doubtful > 0 {
		say("uncertain times", "%d windows may have been at other times than they say: the clocks of their machines were not known well (\"atys get agents -o wide\")", c.Doubtful)
	}
	if c.Pushed > 0 {
		some := counted(int64(c.Pushed), "instances")
		if c.PushedMore {
			some = "at least " + some
		}
		say("pushed: "+some, "windows of %s were pushed by others than agents: whether they cover all of the time is not known", some)
	}
	if c.PrunedShare > 0 {
		say("", "%s", Pruned(c.PrunedShare))
	}
	if n := len(c.Dropped); n > 0 {
		say("part of the time is past retention", "retention has deleted the windows of %s (--retention and --quota of the server)", spans(c.Dropped, time.DateTime, place))
	}
	for _, n := range c.Nodes {
		if short, long := n.words(c.Asked, place); long != "" {
			say(short, "%s", long)
		}
	}
	if c.Cost > 0 && c.CPU > 0 {
		words.Items = append(words.Items, c.cost())
	}
	return words
}

// Pruned says by how much shares can be off, since threads were pruned.
func Pruned(share float64) string {
	return "threads were pruned: no function's share is off by more than " + Share(share)
}

// cost says what profiling took. A share of less than itself tells nobody anything.
func (c Coverage) cost() string {
	took := "profiling took " + span(c.Cost) + " of CPU time"
	if c.Cost > c.CPU {
		return fmt.Sprintf("%s; what was profiled used %s", took, span(c.CPU))
	}
	return fmt.Sprintf("%s: %s of the %s that were used", took, Share(c.Cost.Seconds()/c.CPU.Seconds()), span(c.CPU))
}

// words says when a node was not watched; nothing if it was almost all the time.
func (n NodeCoverage) words(asked Span, place *time.Location) (short, long string) {
	of := asked.To.Sub(asked.From)
	if of-n.Watched < of/100 && len(n.Missing) == 0 && len(n.Stopped) == 0 && !n.Silent {
		return "", ""
	}
	name := "node " + Printable(n.Node)
	long = fmt.Sprintf("%s (%s): %v of %v were watched", name, Printable(n.Task), n.Watched.Round(time.Second), of.Round(time.Second))
	if !n.First.IsZero() {
		long += fmt.Sprintf(", from %s to %s", n.First.In(place).Format(time.TimeOnly), n.Last.In(place).Format(time.TimeOnly))
	}
	if len(n.Missing) > 0 {
		var missing time.Duration
		for _, gap := range n.Missing {
			missing += gap.To.Sub(gap.From)
		}
		short = fmt.Sprintf("%s: %v missing", name, missing.Round(time.Second))
		long += "; missing " + spans(n.Missing, time.TimeOnly, place)
	}
	if len(n.Stopped) > 0 {
		long += "; stopped " + spans(n.Stopped, time.TimeOnly, place)
	}
	if n.Silent {
		short = name + " is silent"
		long += "; its agent is silent"
		if !n.Last.IsZero() {
			long += " since " + n.Last.In(place).Format(time.DateTime)
		}
	}
	return short, long
}

// spans lists the first of some times.
func spans(all []Span, layout string, place *time.Location) string {
	var words []string
	for _, s := range all[:min(len(all), mostSpans)] {
		words = append(words, s.From.In(place).Format(layout)+" to "+s.To.In(place).Format(layout))
	}
	if more := len(all) - mostSpans; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}
