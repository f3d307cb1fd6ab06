package agent

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/agent/pipeline"
	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/test/testwait"
)

// TestFewerWindows has windows of commands and tiny targets take too much: recordings of
// everything are told, the rate stays, and all of it is reported. It ends with the load.
func TestFewerWindows(t *testing.T) {
	s := newSpender(t, budget.Budget{Cores: 0.02}, newTask(builtinID, spec.Builtin(), time.Time{}))
	r := s.tasks[0].recordings[0]
	usual := pipeline.Long{Every: 10 * time.Second}
	told := func() (targets.Commands, pipeline.Long) { return s.spending.commands(r, true), s.spending.long(r) }
	if commands, long := told(); commands.Together || long != usual {
		t.Fatalf("with room: %+v, %+v", commands, long)
	}
	for range 12 {
		s.spending.shipped = budget.Shipped{Windows: 300, Brief: 100, Tiny: 250}
		s.pass(t, budget.Soon, use{cputime.Shipping: 0.03})
	}
	if commands, long := told(); commands != (targets.Commands{Within: 10 * time.Second, Together: true}) || long != (pipeline.Long{Every: 10 * time.Second, Times: budget.Longest}) {
		t.Errorf("over the budget: %+v, %+v", commands, long)
	}
	if got := s.studio.takes(); got != builtinTake {
		t.Errorf("the rate is lowered: %s", got)
	}
	n := s.report().GetState()
	if m := n.GetBudgetMessage(); !strings.Contains(m, "short-lived commands as one target, windows of tiny targets up to 6 times as long") {
		t.Errorf("it is told %q", m)
	}
	if d := n.GetDecisions(); len(d) < 2 || d[0].GetKnob() != "short-lived commands" || d[1].GetKnob() != "tiny targets" || d[0].GetCause() != "shipping" || !strings.Contains(d[0].GetWhy(), "shipping took 3% of a core") {
		t.Errorf("of decisions it is told %v", d)
	}
	s.pass(t, 5*time.Minute, use{cputime.Shipping: 0.001})
	if !s.spending.governor.Together {
		t.Error("commands are apart again before it is known what that takes")
	}
	for range 5 * time.Minute / budget.Soon {
		s.spending.shipped = budget.Shipped{Windows: 30, Brief: 2, Tiny: 5}
		s.pass(t, budget.Soon, use{cputime.Shipping: 0.001})
	}
	if commands, long := told(); commands.Together || long != usual || s.spending.state() != "" {
		t.Errorf("ten minutes after: %+v, %+v, %q", commands, long, s.spending.state())
	}
}

// TestSelectedAreLeft has profiles select targets, or adapt their rates: these know commands by
// their labels, and decide window by window.
func TestSelectedAreLeft(t *testing.T) {
	for name, text := range map[string]string{
		"selects": `{"kind":"Profile","name":"x","select":"{service=\"cc1\"}"}`,
		"adapts":  adaptive,
	} {
		s := newSiteOf(t, text)
		r := s.task.recordings[0]
		s.spending.governor.Together, s.spending.governor.Long = true, budget.Longest
		if got := s.spending.commands(r, r.kept() == nil); got != (targets.Commands{}) {
			t.Errorf("%s: commands are %+v", name, got)
		}
		if got := s.spending.long(r); got.Longer() == r.adapts() {
			t.Errorf("%s: windows may be %+v", name, got)
		}
	}
}

// TestOpenWindowsAreCounted has windows of tiny targets go on: it is known how many an agent
// that is killed takes with it, and that these are none as soon as they are spooled.
func TestOpenWindowsAreCounted(t *testing.T) {
	s := newSite(t, 10*time.Second)
	s.life = newLife(filepath.Join(t.TempDir(), "life"), s.log)
	r := s.sample(t, instance("first"))
	s.kept(t)
	s.spending.governor.Long = budget.Longest
	if s.cutNow(t, r, atEdge); open(s.tasks) != 1 || len(s.kept(t)) != 0 {
		t.Errorf("%d go on", open(s.tasks))
	}
	s.life.note(Usage{}, open(s.tasks))
	s.end(s.task)
	s.settle(t)
	if got := s.kept(t); open(s.tasks) != 0 || len(got) != 1 || got[0] != "first 3 from 1 for 2s" {
		t.Errorf("at the end %d go on, and %v is kept", open(s.tasks), got)
	}
	testwait.Until(t, "it is noted that none goes on", func() bool { return newLife(s.life.name, s.log).before.Open == 0 })
}
