package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConditionsOfAgents(t *testing.T) {
	for _, c := range []struct {
		name        string
		change      func(*ServerFacts)
		check       string
		state       State
		found, mend string
	}{
		{"none", func(*ServerFacts) {}, "stacks", OK, "no agent reports trouble", ""},
		{"late on its machine", func(f *ServerFacts) { f.Agents[1].Conditions = []Condition{{Kind: "windows-late"}} }, "windows late", Limited, "late on n2", "journalctl"},
		{"two agents", func(f *ServerFacts) {
			c := Condition{Kind: "stacks-truncated", Since: f.Now.Add(-7 * time.Minute), Message: "15% of the stacks were truncated", Fix: "--unwind-memory"}
			f.Agents[0].Conditions, f.Agents[1].Conditions = []Condition{c}, []Condition{c}
		}, "stacks", Limited, "n1, for 7m0s: 15% of the stacks were truncated; also n2", "--unwind-memory"},
		{"an agent that left", func(f *ServerFacts) {
			f.Agents[1].Phase, f.Agents[1].Conditions = "left", []Condition{{Kind: "rate-lowered"}}
		}, "rate", OK, "no agent", ""},
		{"a newer agent", func(f *ServerFacts) { f.Agents[1].Conditions = []Condition{{Kind: "made-up", Message: "it rains"}} }, "made-up", Limited, "it rains", "journalctl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := well()
			c.change(&f)
			checks := EvaluateServer(f).Checks
			i := slices.IndexFunc(checks, func(got Check) bool { return got.Name == c.check })
			if i < 0 {
				t.Fatalf("no check is called %s: %+v", c.check, checks)
			}
			got := checks[i]
			if got.State != c.state || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Mend, c.mend) {
				t.Errorf("%+v; want %s, %q, %q", got, c.state, c.found, c.mend)
			}
			if got.State != OK && (got.Mend == "" || got.Cost == "") {
				t.Errorf("no cost or no remedy: %+v", got)
			}
		})
	}
}
