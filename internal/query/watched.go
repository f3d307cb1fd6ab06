package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// Agent is one that the asker knows of by what it told, and not by its windows.
type Agent struct {
	Node         string
	Tasks        map[string]time.Duration // that record everything, and how long their windows are
	First, Heard time.Time                // when it was first and last heard of
	Silent       bool                     // nothing has been heard of it lately
	Chosen       bool                     // it runs what is asked for
}

const (
	// slack is what lies between two windows that follow each other, at most: each
	// begins when the one before it ends, however late or early that was cut, but by
	// clocks that are set. Of short windows it is less; see sight.slack.
	slack = time.Second
	// underway is how long a window takes from its end to the store, at most: it is
	// shipped within seconds, by a request that is waited for as long.
	underway = 30 * time.Second
	// straddling is how long before the time asked for windows are looked for that
	// reach into it. Of a task with longer ones all of a day is looked through.
	straddling = 2 * time.Minute
	// Gone is how long who is silent is waited for: then it was taken away, not
	// having been told to end, and no more is missing of it.
	Gone = 24 * time.Hour
	// nearby is within how long of the end of an agent a service ran on its node if
	// it is taken to run there still.
	nearby = 10 * time.Minute
)

// watcher is an agent at one of its tasks.
type watcher struct{ node, task string }

// sight is a window of a machine itself, all of which was watched.
type sight struct {
	length time.Duration
	step   time.Duration // how long what was added up is, however little of it was watched; 0: it is as it was cut
	last   bool          // its recording ended with it, as it was told to
}

// slack is what lies between a window and the next, if none is missing: a quarter of
// the longer one at most, so that the gap which a lost window leaves shows, also of
// one that was cut early. What was added up does not say how long its windows are.
func (s sight) slack(next sight) time.Duration {
	if s.step != 0 || next.step != 0 {
		return slack
	}
	return min(slack, max(s.length, next.length)/4)
}

// part tells whether only a part of a step was watched, and nobody knows which.
func (s sight) part() bool { return s.length+slack < s.step }

// watch gathers when agents watched, and which windows never came: a machine tells
// of those in a window of any task, for all that runs there.
type watch struct {
	task string    // "": of all
	from time.Time // of the time asked for

	saw    map[watcher]map[int64]sight
	losses []profile.Loss
}

func newWatch(s Selection) *watch {
	return &watch{task: s.Task, from: s.From, saw: map[watcher]map[int64]sight{}}
}

func (w *watch) see(labels profile.Labels, h *profile.Head, step time.Duration) {
	for _, l := range h.Losses {
		if l.Reason.OfWindows() && l.Reason != profile.LossStoreDamage && !h.Start.Before(w.from) {
			addLoss(&w.losses, l)
		}
	}
	if !store.TaskMatches(w.task, h.Task) || h.Watched == 0 { // of a recording that is aimed: what it lost, now and then
		return
	}
	key := watcher{labels["node"], h.Task}
	if w.saw[key] == nil {
		w.saw[key] = map[int64]sight{}
	}
	at := h.Start.UnixNano()
	s := w.saw[key][at]
	w.saw[key][at] = sight{max(s.length, h.Duration), step, s.last || h.Farewell}
}

// late lists those of some nodes of which no window reaches to a time, or
// something before it.
func (w *watch) late(nodes map[string]bool, than time.Time) map[string]bool {
	late := maps.Clone(nodes)
	for key, sights := range w.saw {
		for at, s := range sights {
			start := time.Unix(0, at)
			if !start.After(than.Add(slack)) && start.Add(s.length).After(than.Add(-slack)) {
				delete(late, key.node)
			}
		}
	}
	return late
}

// ends gives when the windows of each node that began before a time ended.
func (w *watch) ends(before time.Time) map[string]time.Time {
	ends := map[string]time.Time{}
	for key, sights := range w.saw {
		for at, s := range sights {
			if start := time.Unix(0, at); start.Before(before) {
				ends[key.node] = later(ends[key.node], start.Add(s.length))
			}
		}
	}
	return ends
}

// covered tells how whole the answer is. When an agent watched is told by the
// windows of the machine itself, which there are always where all is recorded.
// Who should have watched is told by those of a day before, and by the agents
// that are known.
func (q *question) covered(ctx context.Context) (Coverage, error) {
	q.heads.coverage(&q.coverage)
	q.coverage.Damaged, q.coverage.Kinds = q.damage.Count(), q.kinds.Sorted()
	meant, err := q.nodes(ctx, q.From, q.To, nil)
	if err != nil {
		return Coverage{}, err
	}
	agents := q.agents(q.Selection)
	for node, a := range agents {
		if a.Chosen && a.First.Before(q.To) && a.Heard.Add(Gone).After(q.From) {
			meant[node] = true
		}
	}
	w := newWatch(q.Selection)
	if err := q.look(ctx, w, meant); err != nil {
		return Coverage{}, err
	}
	for _, l := range w.losses {
		addLoss(&q.coverage.Losses, l)
	}
	unknown, err := q.unknown(ctx)
	if err != nil {
		return Coverage{}, err
	}
	if err := q.expect(ctx, w, meant, agents); err != nil {
		return Coverage{}, err
	}
	for key, sights := range w.saw {
		if c := q.timeline(key, sights, agents[key.node], unknown); c.Watched > 0 || len(c.Missing) > 0 {
			q.coverage.Nodes = append(q.coverage.Nodes, c)
		}
	}
	slices.SortFunc(q.coverage.Nodes, func(a, b NodeCoverage) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Task, b.Task))
	})
	return q.coverage, nil
}

// agents are those that the asker knows, by their nodes.
func (a Asker) agents(s Selection) map[string]Agent {
	all := map[string]Agent{}
	if a.Agents != nil {
		for _, a := range a.Agents(s) {
			all[a.Node] = a
		}
	}
	return all
}

// expect adds, with no windows, the tasks of agents that are known and of which
// there is no window at all. Where there is one, but none of its machine, an agent
// records with other profilers, which do not watch the machine.
func (q *question) expect(ctx context.Context, w *watch, meant map[string]bool, agents map[string]Agent) error {
	mute := map[string]bool{}
	for node := range agents {
		mute[node] = meant[node]
	}
	for key := range w.saw {
		delete(mute, key.node)
	}
	maps.DeleteFunc(mute, func(_ string, is bool) bool { return !is })
	if len(mute) == 0 {
		return nil
	}
	parts, err := q.parts(ctx, q.From.Add(-Gone), q.To, ofSeries)
	if err != nil {
		return err
	}
	for i := range parts {
		parts[i].Select, parts[i].Task = spec.Selector{onNodes(mute)}, ""
	}
	heard, err := q.nodesOf(ctx, parts)
	for node := range mute {
		for task := range agents[node].Tasks {
			if !heard[node] && store.TaskMatches(q.Task, task) {
				w.saw[watcher{node, task}] = nil
			}
		}
	}
	return err
}

// nodes lists those of series that have windows of what is selected; of, if not
// nil, are the only ones that are looked for.
func (q *question) nodes(ctx context.Context, from, to time.Time, of map[string]bool) (map[string]bool, error) {
	parts, err := q.parts(ctx, from, to, ofSeries)
	if err != nil {
		return nil, err
	}
	if of != nil {
		for i := range parts {
			parts[i].Select = append(spec.Selector{onNodes(of)}, q.Select...)
		}
	}
	return q.nodesOf(ctx, parts)
}

// machines lists the nodes that have windows of the machine itself.
func (q *question) machines(ctx context.Context, from, to time.Time) (map[string]bool, error) {
	parts, err := q.parts(ctx, from, to, ofSeries)
	if err != nil {
		return nil, err
	}
	return q.nodesOf(ctx, ofMachines(parts, nil))
}

func (q *question) nodesOf(ctx context.Context, parts []store.Query) (map[string]bool, error) {
	nodes := map[string]bool{}
	_, err := q.series(ctx, parts, func(labels profile.Labels) { // of times that were not asked for too
		if node := labels["node"]; node != "" {
			nodes[node] = true
		}
	})
	return nodes, err
}

// ofMachines has parts be about the machines of some nodes, or of all.
func ofMachines(parts []store.Query, nodes map[string]bool) []store.Query {
	machines := spec.Selector{{Label: store.ServiceLabel, Op: spec.Equal}}
	if nodes != nil {
		machines = append(machines, onNodes(nodes))
	}
	for i := range parts {
		parts[i].Select, parts[i].Task = machines, ""
	}
	return parts
}

// onNodes is the condition that a series is of one of some nodes.
func onNodes(nodes map[string]bool) spec.Matcher {
	return spec.OneOf("node", slices.Collect(maps.Keys(nodes)))
}

// look sees when the agents of the nodes that are meant watched, and of those
// that were silent when the time asked for began, and of what is selected had
// something to watch until then.
func (q *question) look(ctx context.Context, w *watch, meant map[string]bool) error {
	begin := q.From.Add(-straddling)
	silent, err := q.silentAtFirst(ctx)
	if err != nil {
		return err
	}
	all := maps.Clone(meant)
	maps.Copy(all, silent)
	if err := q.sight(ctx, w, all, Span{begin, q.From}, Span{q.From, q.To}); err != nil {
		return err
	}
	if err := q.sight(ctx, w, w.late(all, q.From), Span{q.From.Add(-Gone), q.From}); err != nil {
		return err
	}
	if err := q.sharpen(ctx, w); err != nil {
		return err
	}
	ends := w.ends(q.From)
	maps.DeleteFunc(ends, func(node string, _ time.Time) bool { return meant[node] || !silent[node] })
	still, err := q.ranUntil(ctx, ends)
	if err != nil {
		return err
	}
	maps.DeleteFunc(w.saw, func(key watcher, _ map[int64]sight) bool { return !meant[key.node] && !still[key.node] })
	return nil
}

// sight notes when the agents of some nodes watched. Each span is planned by
// itself: no window that was added up reaches from one into the next.
func (q *question) sight(ctx context.Context, w *watch, nodes map[string]bool, spans ...Span) error {
	if len(nodes) == 0 {
		return nil
	}
	of := map[store.Level][]store.Query{}
	for _, s := range spans {
		parts, err := q.parts(ctx, s.From, s.To, ofSeries)
		if err != nil {
			return err
		}
		for _, part := range parts {
			of[part.Level] = append(of[part.Level], part)
		}
	}
	for _, level := range ofSeries {
		if err := q.see(ctx, w, ofMachines(of[level], nodes), level.Length()); err != nil {
			return err
		}
	}
	return nil
}

// see notes what parts tell, all of one level, whose steps are so long.
func (q *question) see(ctx context.Context, w *watch, parts []store.Query, step time.Duration) error {
	if len(parts) == 0 {
		return nil
	}
	for i := range parts {
		parts[i].Kinds = q.Selection.Kinds
	}
	err := q.Store.Heads(ctx, q.Tenant, parts, func(h store.Head) error {
		w.see(h.Series, h.Head, step)
		return nil
	})
	if err != nil && !errors.As(err, new(*store.DamagedError)) {
		return fmt.Errorf("read the heads of windows: %w", err)
	}
	return nil
}

// mostSharpened is how many steps are looked at as they were cut: where agents come
// and go all the time the latest.
const mostSharpened = 100

// sharpen sees steps of which a part was watched as they were cut, as long as that
// is kept: agents began or ended within them, and when is not known of what was
// added up.
func (q *question) sharpen(ctx context.Context, w *watch) error {
	type step struct {
		at     int64
		length time.Duration
	}
	nodes := map[step]map[string]bool{}
	for key, sights := range w.saw {
		for at, s := range sights {
			if !s.part() {
				continue
			}
			if nodes[step{at, s.step}] == nil {
				nodes[step{at, s.step}] = map[string]bool{}
			}
			nodes[step{at, s.step}][key.node] = true
		}
	}
	steps := slices.SortedFunc(maps.Keys(nodes), func(a, b step) int { return cmp.Compare(b.at, a.at) })
	for _, s := range steps[:min(len(steps), mostSharpened)] {
		start, near := time.Unix(0, s.at), newWatch(q.Selection)
		part := store.Query{Level: store.Raw, From: start, To: earlier(start.Add(s.length), q.To)}
		if err := q.see(ctx, near, ofMachines([]store.Query{part}, nodes[s]), 0); err != nil {
			return err
		}
		for key, sights := range near.saw {
			if w.saw[key][s.at].part() {
				delete(w.saw[key], s.at)
				maps.Copy(w.saw[key], sights)
			}
		}
	}
	return nil
}

// silentAtFirst lists the nodes that have windows of their machine of the day
// before, and none when the time asked for begins.
func (q *question) silentAtFirst(ctx context.Context) (map[string]bool, error) {
	silent, err := q.machines(ctx, q.From.Add(-Gone), q.From)
	if err != nil || len(silent) == 0 {
		return nil, err
	}
	around, err := q.machines(ctx, q.From, earlier(q.From.Add(straddling), q.To))
	maps.DeleteFunc(silent, func(node string, _ bool) bool { return around[node] })
	return silent, err
}

// ranUntil lists those of some nodes on which what is selected ran when their
// agents ended. Those that ended within some minutes are looked for at once.
func (q *question) ranUntil(ctx context.Context, ends map[string]time.Time) (map[string]bool, error) {
	steps := map[time.Time]map[string]bool{}
	for node, end := range ends {
		step := end.UTC().Truncate(nearby)
		if steps[step] == nil {
			steps[step] = map[string]bool{}
		}
		steps[step][node] = true
	}
	ran := map[string]bool{}
	for step, nodes := range steps {
		found, err := q.nodes(ctx, step.Add(-nearby), step.Add(nearby), nodes)
		if err != nil {
			return nil, err
		}
		maps.Copy(ran, found)
	}
	return ran, nil
}

// unknown are the times asked for of which it is not known any more who watched.
func (q *question) unknown(ctx context.Context) ([]Span, error) {
	parts, err := q.parts(ctx, q.From, q.To, ofSeries)
	if err != nil {
		return nil, err
	}
	return q.droppedOf(ctx, parts, nil)
}

func (a Asker) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// due is until when windows of a length should have come by now. As long as nobody
// knows how long they are they are taken to be as is usual.
func (q *question) due(length time.Duration) time.Time {
	return earlier(q.To, q.now().Add(-underway-cmp.Or(length, spec.DefaultWindow)))
}
