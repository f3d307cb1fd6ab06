package levels

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/store"
)

// observed is a window as an agent has sampled it, and as it sends it.
type observed struct {
	*profile.Window                 // its times are those of the server's clock
	sent            *profile.Window // pruned, if that was asked for, and by the agent's clock
	run             profile.Run
	series          string   // its labels
	stacks          []string // see stackOf
	group           int      // of its series
}

// pruned is the service whose threads agents prune.
const pruned = "crowd"

// world is what the agents of a fleet have observed.
type world struct {
	windows []observed
	// crowded means that services have more contexts than roll-ups tell apart.
	crowded bool
}

// instrument makes windows of some value types.
type instrument struct {
	task     string
	types    []profile.ValueType
	slots    []time.Duration
	lengths  []time.Duration
	contexts bool // rows have contexts, and some are of traced requests
	peers    bool
}

const halfPeriod = 5_000_000 // of CPU time

var (
	cpuTime    = profile.CPUTime(2 * halfPeriod)
	pageFaults = profile.ValueType{Kind: "page-faults", Unit: "count", Period: 1}
	plainSlots = []time.Duration{0, 10 * time.Second, 50 * time.Millisecond}
	someTens   = []time.Duration{10 * time.Second, 20 * time.Second}
)

// instruments are those of one series each. Two of a task measure other kinds, or the same first
// one.
var instruments = []instrument{
	{task: "t", types: []profile.ValueType{cpuTime}, slots: plainSlots, lengths: someTens},
	{task: "t", types: []profile.ValueType{cpuTime, pageFaults}, slots: plainSlots, lengths: someTens, contexts: true},
	{task: "t", types: []profile.ValueType{
		{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall, Variance: profile.Measured},
		{Kind: "waits", Unit: "count", Variance: profile.Measured},
	}, slots: []time.Duration{50 * time.Millisecond}, lengths: someTens, contexts: true, peers: true},
	{task: "t/switches", types: []profile.ValueType{{Kind: "switches", Unit: "count"}}, slots: []time.Duration{0}, lengths: someTens},
	{task: "memory", types: []profile.ValueType{
		{Kind: "heap", Unit: "bytes", Temporality: profile.Level},
		{Kind: "stacks", Unit: "bytes", Temporality: profile.Level, Period: 4096},
	}, slots: []time.Duration{0}, lengths: []time.Duration{10 * time.Second, 20 * time.Second, 70 * time.Second, 3 * time.Minute}, contexts: true},
	{task: "allocations", types: []profile.ValueType{
		{Kind: "allocated", Unit: "bytes", Base: profile.BaseBytes, Variance: profile.Measured},
		{Kind: "goroutines", Unit: "count", Temporality: profile.Level},
	}, slots: []time.Duration{0}, lengths: someTens, contexts: true, peers: true},
}

// begin is when the first windows begin: ten minutes before a day does.
var begin = time.Now().UTC().Truncate(24 * time.Hour).Add(-10 * time.Minute)

// newWorld makes the windows of some instances of a few services and, without a service, of a
// machine. As real ones they begin some moments after the edge that they are cut at; some agents'
// clocks are an hour ahead.
func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 9))
	w := &world{crowded: r.IntN(4) == 0}
	for _, service := range []string{"shop", "cart", pruned, ""} {
		few := instruments[r.IntN(2):]
		usual := map[string]schedule{}
		for _, in := range few {
			usual[in.task] = randomSchedule(r, in)
		}
		for instance := range 1 + r.IntN(4) {
			labels := profile.Labels{"instance": fmt.Sprint("i", instance), "zone": fmt.Sprint("z", instance/2)}
			if labels[store.ServiceLabel] = service; service == "" {
				labels = profile.Labels{"node": fmt.Sprint("n", instance)}
			}
			if instance == 2 {
				labels["executable"] = "helper"
			}
			ahead := time.Duration(0)
			if r.IntN(4) == 0 {
				ahead = time.Hour + 2*time.Millisecond
			}
			for i, in := range few {
				if i == 0 || r.IntN(2) == 0 {
					when := usual[in.task]
					if r.IntN(4) == 0 {
						when = randomSchedule(r, in)
					}
					w.series(r, in, labels, when, ahead)
				}
			}
		}
	}
	return w
}

// schedule says when the windows of a series are cut.
type schedule struct {
	at           time.Time
	length, slot time.Duration
}

func randomSchedule(r *rand.Rand, in instrument) schedule {
	return schedule{begin.Add(pick(r, 0, 580*time.Second, 580*time.Second, 12*time.Minute)), pick(r, in.lengths...), pick(r, in.slots...)}
}

// series adds the windows of one series that follow each other.
func (w *world) series(r *rand.Rand, in instrument, labels profile.Labels, when schedule, ahead time.Duration) {
	at, length, slot := when.at, when.length, when.slot
	for range 2 + r.IntN(5) {
		late := time.Duration(r.IntN(20_000_000))
		if r.IntN(12) == 0 {
			late = time.Duration(r.IntN(1_000_000_000))
		}
		h := profile.Head{Task: in.task, Target: labels, Start: at.Add(late), Duration: length, Slot: slot, Types: in.types, Design: profile.DesignRandomised}
		if r.IntN(6) == 0 { // it was cut in two, or its target ended
			h.Duration = length/2 + time.Duration(r.IntN(int(length/2)))
		}
		randomTotals(r, &h)
		o := observed{Window: w.sample(r, in, h), run: profile.Run{byte(r.IntN(2)), 7}}
		o.sent = shipped(o.Window, ahead)
		o.series, o.group = labels.String(), store.Group(labels)
		for id := range o.Stacks {
			o.stacks = append(o.stacks, strings.Join(stackOf(o.Window, profile.StackID(id)), ";"))
		}
		w.windows = append(w.windows, o)
		if at = at.Add(length); r.IntN(8) == 0 {
			at = at.Add(length)
		}
	}
}

func randomTotals(r *rand.Rand, h *profile.Head) {
	user := time.Duration(r.Int64N(1e9))
	h.Exact = profile.Exact{CPU: user + 7, User: user, System: 7, Wall: 3 * user, RunQueue: time.Duration(r.Int64N(1e9)), Bytes: r.Int64N(1e9), Source: "schedstat"}
	h.Idle, h.Watched, h.Cost = time.Duration(r.IntN(1e6)), time.Duration(r.IntN(1e6)), profile.Cost{User: time.Duration(r.IntN(1e6)), BPF: 3, Interrupt: 1}
	for range r.IntN(3) {
		h.AddLoss(profile.Loss{Reason: pick(r, profile.LossDropped, profile.LossTruncated), Detail: pick(r, "", "ring full"), N: r.Int64N(9) + 1, Value: r.Int64N(1e6)})
	}
}

// shipped is a window as its agent sends it: pruned, and by its clock.
func shipped(w *profile.Window, ahead time.Duration) *profile.Window {
	sent := *w
	sent.Rows, sent.Stacks, sent.Locations, sent.Names = w.Rows.Clone(), slices.Clone(w.Stacks), slices.Clone(w.Locations), slices.Clone(w.Names)
	for i, s := range sent.Stacks { // pruning renumbers locations
		sent.Stacks[i].Locations = slices.Clone(s.Locations)
	}
	sent.Start, sent.ClockOffset, sent.ClockError = w.Start.Add(ahead.Round(time.Second)), ahead, time.Millisecond
	if w.Target[store.ServiceLabel] == pruned {
		prune.Window(&sent, 90, nil)
	}
	return &sent
}

// sample fills a window.
func (w *world) sample(r *rand.Rand, in instrument, h profile.Head) *profile.Window {
	b := profile.NewBuilder(h)
	rows := r.IntN(16)
	if h.Target[store.ServiceLabel] == pruned {
		rows *= 5
	}
	for range rows {
		row := profile.Row{Stack: randomStack(r, b), N: 1 + r.Int64N(4)*r.Int64N(4)}
		if h.Slot > 0 {
			row.Slot = uint32(r.Int64N(int64(h.Duration/h.Slot) + 2))
		}
		if r.IntN(5) > 0 {
			row.Thread = b.Thread(w.thread(r, h.Target))
		}
		if in.contexts && r.IntN(4) > 0 {
			row.Context = b.Context(w.context(r))
		}
		if in.peers && r.IntN(3) == 0 {
			row.Peer = profile.PeerID(randomStack(r, b)) + 1
		}
		for _, t := range in.types {
			value, squares := randomValue(r, t, row.N)
			row.Values, row.Squares = append(row.Values, value), append(row.Squares, squares)
		}
		b.Add(row)
		if in.contexts && r.IntN(2) == 0 {
			b.AddExemplar(profile.Exemplar{Trace: fmt.Sprint("t", r.IntN(1000)), Span: fmt.Sprint(r.Uint64()), Stack: row.Stack, Thread: row.Thread,
				Context: row.Context, Time: time.Duration(r.Int64N(int64(h.Duration))), Value: row.Values[0]})
		}
	}
	if r.IntN(4) == 0 {
		b.Thread(profile.Thread{PID: 7, TID: 200, Name: "idle", Exact: profile.Exact{CPU: 5, Source: "schedstat"}})
	}
	return b.Window()
}

// randomValue returns what some samples of a type add up to, and its variance: what rounding
// does not touch.
func randomValue(r *rand.Rand, t profile.ValueType, n int64) (value int64, squares float64) {
	switch {
	case t.Kind == "goroutines": // few of them: what is averaged is close to one
		return n, float64(n)
	case t.Variance == profile.Measured:
		return 1 + r.Int64N(1e9), float64(r.Int64N(2) * r.Int64N(1e12))
	}
	unit := max(t.Period/2, 1)
	value = n * unit * (1 + r.Int64N(2000))
	if squares = profile.Alike(n, value); n > 1 {
		squares += float64(unit) * float64(unit) * float64(r.Int64N(1e4))
	}
	return value, squares
}

func (w *world) context(r *rand.Rand) profile.Context {
	endpoints := 3
	if w.crowded {
		endpoints = 200
	}
	c := profile.Context{Reason: pick(r, "", "blocked", "run queue"), Endpoint: fmt.Sprint("/", r.IntN(endpoints))}
	if r.IntN(5) == 0 {
		c.Interval, c.Labels = "checkout", `{customer="a"}`
	}
	return c
}

// thread is one of a few, or of the many of the service that is pruned, most of which have few
// samples.
func (w *world) thread(r *rand.Rand, labels profile.Labels) profile.Thread {
	number := r.IntN(4)
	if labels[store.ServiceLabel] == pruned && r.IntN(3) == 0 {
		number = r.IntN(100)
	}
	return profile.Thread{PID: 7, TID: 7 + number, Process: "shop; drop", Name: fmt.Sprint("http-", number), Exact: profile.Exact{CPU: time.Duration(1 + r.IntN(1e6)), Source: "schedstat"}}
}

// randomStack makes a stack of some functions that call each other, and of code without a name.
func randomStack(r *rand.Rand, b *profile.Builder) profile.StackID {
	var stack []profile.LocationID
	for range r.IntN(5) {
		number := r.IntN(9)
		function := profile.Frame{Function: fmt.Sprint("f", number), File: "/src/a.cc", Line: 10, Mapping: "/usr/bin/shop", Kind: profile.KindNative}
		switch number {
		case 7:
			stack = append(stack, b.Location(profile.Location{Kind: profile.KindNative, BuildID: "abcd", Offset: 0x1000}))
		case 8:
			inlined := function
			inlined.Function, inlined.Inlined = "inlined", true
			stack = append(stack, b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ef01", Offset: 0x2000}, inlined, function))
		default:
			stack = append(stack, b.Named(function))
		}
	}
	return b.Stack(stack, pick(r, profile.EndComplete, profile.EndComplete, profile.EndTooDeep, profile.EndNoUnwind))
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
