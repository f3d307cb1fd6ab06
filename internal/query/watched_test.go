package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// life is an agent's windows of its machine, a minute each, from a minute of the
// hour that is asked for to another. A service runs on its node all the while.
type life struct {
	from, to int
	service  string
	told     bool // to end
}

func (l life) windows(node string) (all []written) {
	for minute := l.from; minute < l.to; minute++ {
		h := machineHead(minute)
		if l.told && minute == l.to-1 {
			h.Farewell = true
		}
		all = append(all, written{labels: profile.Labels{"node": node}, head: h},
			written{profile.Labels{"node": node, "service": l.service}, head(minute), "", map[string]int64{"main": 1}})
	}
	return all
}

// TestWhoWasSilent asks for an hour, at its end, of a node that was watched when
// its agent lived. What is due by then is all but
// a window and half a minute.
func TestWhoWasSilent(t *testing.T) {
	const day = 24 * 60
	minute := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	agent := func(a Agent) []Agent {
		a.Node, a.Tasks, a.Heard = "n", map[string]time.Duration{"t": 10 * time.Second}, minute(60)
		return []Agent{a}
	}
	for name, test := range map[string]struct {
		lives   []life
		agents  []Agent
		from    time.Duration // of the time asked for, after the hour begins
		later   time.Duration // it is asked so long after the hour ended
		dropped int           // windows of before this minute are kept no more
		want    string
	}{
		"all the time":                     {lives: []life{{0, 59, "shop", false}}, want: "12:00-12:59"},
		"from before":                      {lives: []life{{-9, 59, "shop", false}}, from: 30 * time.Second, want: "12:01-12:59"},
		"killed":                           {lives: []life{{0, 40, "shop", false}}, want: "12:00-12:40 missing 12:40:00-12:58:30 silent"},
		"killed, asked next month":         {lives: []life{{0, 40, "shop", false}}, later: 30 * day * time.Minute, want: "12:00-12:40 missing 12:40:00-13:00:00 silent"},
		"killed and back":                  {lives: []life{{0, 40, "shop", false}, {50, 59, "shop", false}}, want: "12:00-12:59 missing 12:40:00-12:50:00"},
		"killed before":                    {lives: []life{{-30, -20, "shop", false}}, want: "11:40 missing 12:00:00-12:58:30 silent"},
		"killed before, and back":          {lives: []life{{-30, -20, "shop", false}, {10, 59, "shop", false}}, want: "12:10-12:59 missing 12:00:00-12:10:00"},
		"killed before, back without it":   {lives: []life{{-30, -20, "shop", false}, {10, 59, "cart", false}}, want: "12:10-12:59 missing 12:00:00-12:10:00"},
		"killed where another one ran":     {lives: []life{{-30, -20, "cart", false}}, want: ""},
		"killed after it had gone":         {lives: []life{{-90, -60, "shop", false}, {-60, -20, "cart", false}}, want: ""},
		"killed most of a day before":      {lives: []life{{-day + 10, -day + 30, "shop", false}}, want: "12:30 missing 12:00:00-12:30:00"},
		"killed more than a day before":    {lives: []life{{-day - 90, -day - 1, "shop", false}}, want: ""},
		"new":                              {lives: []life{{30, 59, "shop", false}}, want: "12:30-12:59"},
		"told to end":                      {lives: []life{{0, 40, "shop", true}}, want: "12:00-12:40 stopped 12:40:00-12:58:30"},
		"told to end, and back":            {lives: []life{{0, 40, "shop", true}, {50, 59, "shop", false}}, want: "12:00-12:59 stopped 12:40:00-12:50:00"},
		"told to end before":               {lives: []life{{-30, -20, "shop", true}}, want: ""},
		"told to end, then killed":         {lives: []life{{0, 20, "shop", true}, {21, 40, "shop", false}}, want: "12:00-12:40 missing 12:40:00-12:58:30 stopped 12:20:00-12:21:00 silent"},
		"forgotten in part":                {lives: []life{{-30, -20, "shop", false}}, dropped: 30, want: "11:40 missing 12:30:00-12:58:30 silent"},
		"heard of, without windows":        {agents: agent(Agent{First: minute(10), Chosen: true}), want: " missing 12:10:00-12:59:20"},
		"heard of, running something else": {agents: agent(Agent{First: minute(10)}), want: ""},
		"heard of a moment ago":            {agents: agent(Agent{First: minute(60).Add(-40 * time.Second), Chosen: true}), want: ""},
		"heard of since":                   {agents: agent(Agent{First: minute(61), Chosen: true}), later: time.Hour, want: ""},
		"heard of, its windows late":       {lives: []life{{0, 40, "shop", false}}, agents: agent(Agent{First: minute(-9), Chosen: true}), want: "12:00-12:40 missing 12:40:00-12:58:30"},
		"not heard of for a moment":        {lives: []life{{0, 59, "shop", false}}, agents: agent(Agent{First: minute(-9), Silent: true}), want: "12:00-12:59 silent"},
	} {
		t.Run(name, func(t *testing.T) {
			kept := &shelf{dropped: map[store.Level]time.Time{}}
			for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
				kept.dropped[level] = minute(test.dropped)
			}
			for _, l := range test.lives {
				kept.windows = append(kept.windows, l.windows("n")...)
			}
			a := Asker{Store: kept, Now: func() time.Time { return minute(60).Add(test.later) }, Agents: func(Selection) []Agent { return test.agents }}
			s := about(t, `{service="shop"}`)
			s.From = s.From.Add(test.from)
			_, c, err := a.Merge(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if got := nodesText(c.Nodes); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if _, other, err := a.Labels(t.Context(), s); err != nil || nodesText(other.Nodes) != test.want {
				t.Errorf("labels: %q, %v", nodesText(other.Nodes), err)
			}
			if list, err := a.Windows(t.Context(), s, 1000); err != nil || nodesText(list.Coverage.Nodes) != test.want || list.Coverage.Windows != c.Windows {
				t.Errorf("windows: %v", err)
			}
		})
	}
}

func nodesText(nodes []NodeCoverage) string {
	var words []string
	for _, n := range nodes {
		when := ""
		if !n.First.IsZero() {
			when = n.First.UTC().Format("15:04-")
		}
		if !n.Last.IsZero() {
			when += n.Last.UTC().Format("15:04")
		}
		words = append(words, when)
		for _, s := range n.Missing {
			words = append(words, fmt.Sprintf("missing %s-%s", s.From.UTC().Format(time.TimeOnly), s.To.UTC().Format(time.TimeOnly)))
		}
		for _, s := range n.Stopped {
			words = append(words, fmt.Sprintf("stopped %s-%s", s.From.UTC().Format(time.TimeOnly), s.To.UTC().Format(time.TimeOnly)))
		}
		if n.Silent {
			words = append(words, "silent")
		}
	}
	return strings.Join(words, " ")
}

// TestOtherProfilers has an agent record with one that does not watch the machine:
// nobody can tell whether it was silent.
func TestOtherProfilers(t *testing.T) {
	kept := &shelf{windows: []written{{profile.Labels{"node": "n", "service": "shop"}, head(3), "", map[string]int64{"main": 1}}}}
	a := Asker{Store: kept, Now: func() time.Time { return noon.Add(time.Hour) }, Agents: func(Selection) []Agent {
		return []Agent{{Node: "n", Chosen: true, Tasks: map[string]time.Duration{"t": time.Minute}, First: noon, Heard: noon.Add(time.Hour)}}
	}}
	if _, c, err := a.Merge(t.Context(), about(t, `{service="shop"}`)); err != nil || len(c.Nodes) != 0 {
		t.Errorf("%+v, %v", c.Nodes, err)
	}
}

// TestAimedRecordings has a task that selects targets tell of a machine only what
// it lost there: that says nothing of when it watched.
func TestAimedRecordings(t *testing.T) {
	lost := head(4)
	lost.Losses = []profile.Loss{{Reason: profile.LossDropped, N: 9}, {Reason: profile.LossSpoolLimit, N: 4}}
	kept := &shelf{windows: []written{
		{profile.Labels{"node": "n", "service": "shop"}, head(3), "", map[string]int64{"main": 1}},
		{profile.Labels{"node": "n"}, lost, "", nil},
	}}
	a := Asker{Store: kept, Now: func() time.Time { return noon.Add(time.Hour) }}
	_, c, err := a.Merge(t.Context(), about(t, `{service="shop"}`))
	if err != nil || len(c.Nodes) != 0 {
		t.Errorf("watched were %+v, %v", c.Nodes, err)
	}
	if h := (profile.Head{Losses: c.Losses}); h.LossOf(profile.LossSpoolLimit).N != 4 {
		t.Errorf("lost are %+v", c.Losses)
	}
}

// TestOneWindowLost has one of many windows be lost, which are cut at the edges of the
// clock, or some moments late, and now and then early: that is missing, however short
// windows are, and nothing else is.
func TestOneWindowLost(t *testing.T) {
	const windows = 20
	for _, length := range []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		for lost := -1; lost < windows; lost++ {
			kept, from, want := &shelf{}, noon, Span{}
			for i := range windows {
				end := noon.Add(time.Duration(i+1) * length).Add(time.Duration(i%3) * 20 * time.Millisecond)
				if i%5 == 4 {
					end = end.Add(-length / 3) // as a profile has changed, or its tables were full
				}
				h := machineHead(0)
				h.Start, h.Duration = from, end.Sub(from)
				if from = end; i == lost {
					want = Span{h.Start, end}
					continue
				}
				kept.windows = append(kept.windows, written{profile.Labels{"node": "n"}, h, "", nil},
					written{profile.Labels{"node": "n", "service": "shop"}, h, "", map[string]int64{"main": 1}})
			}
			a := Asker{Store: kept, Now: func() time.Time { return from }}
			s := about(t, `{service="shop"}`)
			s.To = from
			_, c, err := a.Merge(t.Context(), s)
			if err != nil || len(c.Nodes) != 1 {
				t.Fatalf("%v: %+v", err, c.Nodes)
			}
			var missing []Span
			if lost > 0 && lost < windows-1 { // else there is none on one side
				missing = append(missing, want)
			}
			got := c.Nodes[0].Missing
			if len(got) != len(missing) || len(got) == 1 && (!got[0].From.Equal(want.From) || !got[0].To.Equal(want.To)) {
				t.Errorf("windows of %v, the one at %d lost: missing is %v, want %v", length, lost, got, missing)
			}
		}
	}
}
