package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// window is a summary of ten seconds that ended so many seconds after the start.
func window(ended int, samples int64, truncated map[profile.End]int64) Summary {
	return Summary{End: start.Add(time.Duration(ended) * time.Second), Length: 10 * time.Second, Samples: samples, Truncated: truncated,
		Exact: time.Duration(samples) * 50 * time.Millisecond}
}

func TestConditions(t *testing.T) {
	cut := func(n int64) map[profile.End]int64 {
		return map[profile.End]int64{profile.EndNotLoaded: n, profile.EndNoUnwind: n / 2}
	}
	short := window(10, 1000, nil)
	short.Unsampled = short.Exact / 8
	hardly := window(10, 1000, nil)
	hardly.Unsampled = hardly.Exact / 60
	late := window(10, 10, nil)
	late.Delay = 11 * time.Second
	slow := window(10, 10, nil)
	slow.Delay = 9 * time.Second
	oneService := window(10, 1000, cut(100))
	oneService.Services = map[string]int64{"checkout": 120, "cart": 20, "": 10}
	for _, c := range []struct {
		name    string
		windows []Summary
		state   State
		want    Kind // "": none
		message string
	}{
		{"all is well", []Summary{window(10, 1000, cut(8))}, State{Rates: []Rate{{"builtin", "cpu", 19, 19}}}, "", ""},
		{"truncated", []Summary{window(10, 1000, cut(100))}, State{}, StacksCut, "15% of the stacks were truncated: 10% unwind information not loaded yet, 5% no unwind information"},
		{"truncated, mostly of one service", []Summary{oneService, window(10, 10, nil)}, State{}, StacksCut, "5% no unwind information; 80% of them in checkout"},
		{"few samples decide nothing", []Summary{window(10, 100, cut(10))}, State{}, "", ""},
		{"few samples a window, many in all", []Summary{window(-290, 100, cut(10)), window(-190, 100, cut(10)), window(10, 100, cut(10))}, State{}, StacksCut, "15%"},
		{"what is long past is not added where there is enough", []Summary{window(-290, 1000, cut(300)), window(10, 1000, nil)}, State{}, "", ""},
		{"not sampled", []Summary{short}, State{}, Unsampled, "12.5% of the CPU time was not sampled"},
		{"almost all sampled", []Summary{hardly}, State{}, "", ""},
		{"rate", nil, State{Rates: []Rate{{"a", "cpu", 19, 19}, {"b", "cpu", 5, 99}}}, RateLow, "b at 5 of 99 Hz"},
		{"budget", nil, State{Budget: "4% of a core", Excess: true, Cores: 0.062, Bytes: 80e6}, OverBudget, "over the budget (4% of a core) with nothing left to restrain: it takes 6.2% of a core and 80 MB"},
		{"late", []Summary{late, slow}, State{}, Late, "1 windows of the last minute were late, by up to 11s"},
		{"slow, but not late", []Summary{slow}, State{}, "", ""},
		{"full disk", []Summary{late}, State{Unspooled: 29}, Late, "29 windows are only in memory: the disk does not take them"},
		{"backlog", nil, State{Waiting: 301}, Late, "301 windows wait to be shipped"},
		{"backlog of many targets", nil, State{Waiting: 301, Targets: 100}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Monitor
			for _, w := range c.windows {
				m.Observe(w)
			}
			all := m.Evaluate(start.Add(15*time.Second), c.state)
			if c.want == "" {
				if len(all) > 0 {
					t.Errorf("%+v, want none", all)
				}
				return
			}
			if len(all) != 1 || all[0].Kind != c.want || !strings.Contains(all[0].Message, c.message) || all[0].Fix == "" {
				t.Errorf("%+v, want %s: %q and a way out", all, c.want, c.message)
			}
		})
	}
}

// TestThrashing evicts tables at a steady rate, some of which are needed again.
func TestThrashing(t *testing.T) {
	for _, c := range []struct {
		again uint64 // a second
		want  bool
	}{{0, false}, {10, false}, {11, true}} {
		t.Run(fmt.Sprint(c.again), func(t *testing.T) {
			var m Monitor
			var all []Condition
			for s := range 180 {
				all = m.Evaluate(start.Add(time.Duration(s)*time.Second), State{Tables: Tables{Evicted: uint64(s) * 10, Again: uint64(s) * c.again, Used: 16e6, Most: 16e6}})
			}
			if got := Find(all, Thrashing) != nil; got != c.want {
				t.Errorf("thrashing: %v, want %v: %+v", got, c.want, all)
			}
		})
	}
}

// TestSince holds a condition, lets it end and begin again.
func TestSince(t *testing.T) {
	var m Monitor
	over := State{Excess: true}
	at := func(s int, state State) *Condition {
		return Find(m.Evaluate(start.Add(time.Duration(s)*time.Second), state), OverBudget)
	}
	at(0, State{})
	at(1, over)
	if c := at(60, over); c == nil || !c.Since.Equal(start.Add(time.Second)) {
		t.Errorf("%+v, want it to hold since second 1", c)
	}
	if c := at(61, State{}); c != nil {
		t.Errorf("%+v still holds", c)
	}
	if c := at(62, over); c == nil || !c.Since.Equal(start.Add(62*time.Second)) {
		t.Errorf("%+v, want it to hold since second 62", c)
	}
}

// TestOldWindowsAreForgotten bounds what a monitor keeps.
func TestOldWindowsAreForgotten(t *testing.T) {
	var m Monitor
	for s := range 24 * 60 * 6 {
		m.Observe(window(10*s, 1, nil))
		m.Evaluate(start.Add(time.Duration(10*s)*time.Second), State{})
	}
	if len(m.windows) > 61 || len(m.tables) > 7 {
		t.Errorf("%d windows and %d readings of tables are kept", len(m.windows), len(m.tables))
	}
}

func TestSummarize(t *testing.T) {
	w := func(ns ...int64) *profile.Window {
		w := &profile.Window{Head: profile.Head{Target: profile.Labels{"service": "cart"}, Start: start, Duration: 10 * time.Second, Exact: profile.Exact{CPU: time.Second}}}
		for i, n := range ns {
			w.Stacks = append(w.Stacks, profile.Stack{End: []profile.End{profile.EndComplete, profile.EndTooDeep, profile.EndNoUser}[i]})
			w.Rows.Append(profile.Row{Stack: profile.StackID(i), N: n})
		}
		return w
	}
	got := Summarize([]*profile.Window{w(5, 3, 2), w(1, 1)}, start.Add(12*time.Second))
	if got.Samples != 12 || got.truncated() != 4 || got.Truncated[profile.EndTooDeep] != 4 || got.Delay != 2*time.Second || got.Exact != 2*time.Second || got.Length != 10*time.Second || got.Services["cart"] != 4 {
		t.Errorf("%+v", got)
	}
}
