package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/test/golden"
)

// The tasks that windows are of.
const (
	always  = "always"
	nightly = "nightly"
)

const (
	window = 10 * time.Second
	period = int64(time.Second) / 19
)

var nodes = []string{"n1", "n2"}

// program makes windows of one service, each with all that its shape has.
type program struct {
	service, language string
	shape             func(*maker)
}

// programs are a service of each shape of a window.
func programs() []program {
	return []program{
		{"shop", "go", (*maker).adaptive},
		{"cart", "python", (*maker).contexts},
		{"mail", "java", (*maker).pruned},
		{"search", "node", (*maker).chosen},
		{"db", "native", (*maker).ends},
		{"legacy", "native", (*maker).designs},
		{"faults", "native", (*maker).events},
		{"queue", "go", (*maker).waits},
	}
}

// maker makes one window. What it draws depends on where and when it is of alone.
type maker struct {
	*profile.Builder
	r       *rand.Rand
	program program
	cut     int // the how many-th of its series
}

// make makes a window of a program on a node.
func make1(p program, node string, start time.Time, cut int) *profile.Window {
	seed := uint64(start.UnixNano())
	for _, c := range p.service + node {
		seed = seed*31 + uint64(c)
	}
	m := &maker{r: rand.New(rand.NewPCG(seed, 29)), program: p, cut: cut}
	m.Builder = profile.NewBuilder(profile.Head{
		Task: always, Start: start.Add(time.Duration(m.r.IntN(5e6))), Duration: window,
		Target:      profile.Labels{store.ServiceLabel: p.service, "node": node, "instance": node + "-1", "language": p.language, "zone": "a"},
		Types:       []profile.ValueType{profile.CPUTime(period)},
		Design:      profile.DesignRandomised,
		ClockOffset: -3 * time.Millisecond, ClockError: 400 * time.Microsecond,
		Rate: profile.Rate{Hertz: 19},
		Cost: profile.Cost{User: time.Duration(m.r.IntN(4e6)), BPF: time.Duration(m.r.IntN(2e6)), Interrupt: time.Duration(m.r.IntN(1e6))},
	})
	p.shape(m)
	w := m.Window()
	cpu := time.Duration(w.Total(0)) * 101 / 100
	if w.Types[0].Kind == "cpu" {
		w.Exact = profile.Exact{CPU: cpu, User: cpu * 3 / 4, System: cpu - cpu*3/4, Source: "sum_exec_runtime, split by utime:stime", IncludesInterrupt: cut%2 == 0}
	}
	return w
}

// location is a function of the program; its number decides what it is.
func (m *maker) location(i int) profile.LocationID {
	s := m.program.service
	switch i % 7 {
	case 0:
		f := profile.Frame{Function: fmt.Sprintf("%s.serve%d(int, char const*)", s, i), Linkage: fmt.Sprintf("_ZN4%s6serve%d", s, i), File: "/src/" + s + "/serve.cc", Line: 10 + i, StartLine: 10,
			Mapping: "/usr/bin/" + s, Kind: profile.KindNative, Class: profile.ClassApplication}
		in := f
		in.Function, in.Linkage, in.Inlined = fmt.Sprintf("%s.inlined%d", s, i), "", true
		return m.Location(profile.Location{Kind: profile.KindNative, BuildID: s + "01", Offset: uint64(0x1000 + 16*i)}, in, f)
	case 1: // which nobody has named
		return m.Location(profile.Location{Kind: profile.KindNative, BuildID: s + "02", Offset: uint64(0x2000 + 16*i)})
	case 2:
		return m.Location(profile.Location{Kind: profile.KindKernel, BuildID: "kernel", Offset: uint64(0x3000 + 16*i)},
			profile.Frame{Function: fmt.Sprintf("sys_call%d", i), Mapping: "[kernel.kallsyms]", Kind: profile.KindKernel, Class: profile.ClassKernel})
	case 3:
		return m.Named(profile.Frame{Function: fmt.Sprintf("%s.handle%d", s, i), File: "/app/" + s + ".py", Line: i, StartLine: 1, Kind: profile.KindPython, Class: profile.ClassApplication})
	case 4:
		return m.Location(profile.Location{Kind: profile.KindJavaCompiled, Name: fmt.Sprintf("com/%s/Main.call%d(I)V", s, i), File: "Main.java", Line: i},
			profile.Frame{Function: fmt.Sprintf("com.%s.Main.call%d", s, i), File: "Main.java", Line: i, Kind: profile.KindJavaCompiled, Class: profile.ClassLibrary})
	case 5:
		return m.Named(profile.Frame{Function: fmt.Sprintf("runtime.gc%d", i), Kind: profile.KindV8, Class: profile.ClassRuntime, Mapping: "/usr/bin/node"})
	}
	// One of each kind of code, in turn.
	kind := profile.Kind(i / 7 % (int(profile.KindJIT) + 1))
	return m.Named(profile.Frame{Function: fmt.Sprintf("%s.of %s", s, kind), File: "/app/any", Kind: kind, Class: profile.Class(i % 5)})
}

// stack is one of some: the hot ones come often.
func (m *maker) stack(end profile.End) profile.StackID {
	hot := min(m.r.IntN(14), m.r.IntN(14))
	locations := []profile.LocationID{m.location(hot), m.location(hot / 2), m.location(hot%3 + 20), m.location(21)}
	return m.Stack(locations[:2+m.r.IntN(3)], end)
}

// rows adds some, of weights that differ or not.
func (m *maker) rows(n int, row func(*profile.Row)) {
	types := m.Head().Types
	for range n {
		r := profile.Row{Stack: m.stack(profile.EndComplete), N: 1 + int64(m.r.IntN(4))*int64(m.r.IntN(2)), Values: make([]int64, len(types))}
		for i, t := range types {
			each := max(t.Period, 1)
			r.Values[i] = r.N * each
			if m.Head().Design == profile.DesignRandomised && each > 1 {
				r.Values[i] += each / 2 * int64(m.r.IntN(3)-1)
			}
		}
		r.Squares = []float64{profile.Alike(r.N, r.Values[0])}
		if r.N > 1 && types[0].Period > 1 {
			r.Squares[0] += float64(types[0].Period) * float64(types[0].Period) / 4
		}
		if row != nil {
			row(&r)
		}
		m.Add(r)
	}
}

// patterns gives rows threads by pattern, which have exact times.
func (m *maker) patterns(r *profile.Row) {
	name := fmt.Sprintf("http-exec-#%c", 'a'+m.r.IntN(3))
	t := time.Duration(r.Values[0])
	r.Thread = m.Thread(profile.Thread{Process: m.program.service, Name: name, Exact: profile.Exact{CPU: t, User: t / 2, System: t - t/2, Source: "schedstat"}})
}

// adaptive is of a service whose rate a policy chooses: slots are told apart.
func (m *maker) adaptive() {
	h := m.Head()
	h.Slot = time.Second
	hertz := []float64{19, 49, 99.5, 999}[m.cut%4]
	h.Rate = profile.Rate{Hertz: hertz, Policy: []string{"auto", "atys"}[m.cut%2], Reason: []string{"began", "changed", "returned", "steady", "stays", "few"}[m.cut%6],
		Why: "divergence 0.3 of the window before, threshold 0.05", By: []string{profile.ByServer, profile.ByAgent, profile.ByBudget}[m.cut%3]}
	h.Types[0].Period = int64(float64(time.Second) / hertz)
	m.rows(20, func(r *profile.Row) {
		m.patterns(r)
		r.Slot = 1 + uint32(m.r.IntN(10))
	})
}

// contexts is of a program that says what it does, and of which some requests are traced.
// Threads are told apart each.
func (m *maker) contexts() {
	h := m.Head()
	h.Types = append(h.Types, profile.ValueType{Kind: "page-faults", Unit: "count", Period: 1}, profile.ValueType{Kind: "bytes", Unit: "bytes"})
	m.rows(14, func(r *profile.Row) {
		r.Values[1], r.Values[2] = int64(m.r.IntN(9)), int64(m.r.IntN(1<<20))
		tid := 100 + m.r.IntN(3)
		r.Thread = m.Thread(profile.Thread{PID: 100, TID: tid, Process: "python3", Name: fmt.Sprint("worker-", tid)})
		r.Context = m.Context(profile.Context{Endpoint: []string{"GET /cart", "POST /cart"}[m.r.IntN(2)],
			Interval: []string{"", "checkout"}[m.r.IntN(2)], Labels: []string{"", `{customer="a"}`}[m.r.IntN(2)]})
		if m.r.IntN(2) == 0 {
			m.AddExemplar(profile.Exemplar{Trace: "4bf92f3577b34da6", Span: fmt.Sprintf("00f067aa0ba9%04x", m.r.IntN(1<<16)), Stack: r.Stack, Thread: r.Thread,
				Context: r.Context, Time: time.Duration(m.r.IntN(int(window))), Value: r.Values[0] / r.N})
		}
	})
}

// waits is of a program that waits: each row names a reason and, where it is known, who woke
// the thread. Its heap is a level.
func (m *maker) waits() {
	h := m.Head()
	h.Design, h.Slot = profile.DesignSizeBiased, 50*time.Millisecond
	h.Types = []profile.ValueType{{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall, Variance: profile.Measured},
		{Kind: "waits", Unit: "count", Variance: profile.Measured}, {Kind: "heap", Unit: "bytes", Temporality: profile.Level}}
	m.rows(14, func(r *profile.Row) {
		r.Values = []int64{r.N * int64(m.r.IntN(1e7)), r.N, int64(m.r.IntN(1 << 30))}
		r.Squares = []float64{float64(m.r.IntN(1e12)), float64(m.r.IntN(9)), 0}
		r.Context = m.Context(profile.Context{Reason: []string{"blocked", "run queue"}[m.r.IntN(2)]})
		r.Slot = 1 + uint32(m.r.IntN(200))
		if m.r.IntN(3) == 0 {
			r.Peer = profile.PeerID(m.stack(profile.EndComplete)) + 1
		}
	})
}

// pruned is of a service with many threads, of which few matter.
func (m *maker) pruned() {
	m.rows(40, func(r *profile.Row) {
		r.Thread = m.Thread(profile.Thread{PID: 7, TID: 7 + min(m.r.IntN(30), m.r.IntN(30)), Process: "java", Name: "pool"})
	})
	w := m.Window()
	groups := make([]int, len(w.Threads))
	prune.Window(w, 90, groups)
	for i := range w.Losses {
		w.Losses[i].Detail = prune.Level(90)
	}
}

// chosen is of a service of which some instances are recorded only, by a task that
// has another name.
func (m *maker) chosen() {
	h := m.Head()
	h.Task, h.Instances = nightly, profile.Instances{Recorded: 2, Eligible: 9}
	m.rows(8, nil)
}

// ends is of stacks that ended in each of the ways, and of their losses.
func (m *maker) ends() {
	m.rows(4, m.patterns)
	for end := profile.EndUnknown; end <= profile.EndDamaged; end++ {
		r := profile.Row{Stack: m.stack(end), N: 1, Values: []int64{period}, Squares: []float64{float64(period) * float64(period)}}
		m.Add(r)
		switch {
		case end == profile.EndStarting:
			m.Head().AddLoss(profile.Loss{Reason: profile.LossStarting, Detail: end.String(), N: r.N, Value: period})
		case end.Truncated():
			m.Head().AddLoss(profile.Loss{Reason: profile.LossTruncated, Detail: end.String(), N: r.N, Value: period})
		}
	}
}

// designs is of samples that were chosen in other ways, and of clocks that nobody has
// compared.
func (m *maker) designs() {
	h := m.Head()
	h.Design = []profile.Design{profile.DesignUnknown, profile.DesignPeriodic, profile.DesignThinned, profile.DesignSizeBiased}[m.cut%4]
	if m.cut%3 == 0 {
		h.ClockOffset, h.ClockError = 0, profile.ClockUnknown
	}
	h.Rate = profile.Rate{}
	h.AddComment("a comment of somebody else")
	m.rows(6, m.patterns)
}

// events is of a profile that records every event of another kind: a task of its own.
func (m *maker) events() {
	h := m.Head()
	h.Task = always + "/page-faults"
	h.Types = []profile.ValueType{{Kind: "page-faults", Unit: "count", Period: 1}}
	h.Design, h.Rate = profile.DesignCensus, profile.Rate{}
	m.rows(10, m.patterns)
}

// machine is what an agent tells of a node itself, of one task. The last says farewell.
func machine(node string, start time.Time, last bool) *profile.Window {
	p := program{"", "", func(m *maker) {
		m.rows(3, nil)
		h := m.Head()
		h.Target, h.Watched, h.Idle = profile.Labels{"node": node, "zone": "a"}, 2*window, window
		for i, reason := range profile.LossReasons() {
			h.AddLoss(profile.Loss{Reason: reason, Detail: []string{"", "ring full"}[i%2], N: int64(i + 1), Value: int64(i) * period})
		}
		if last {
			h.Farewell = true
		}
	}}
	return make1(p, node, start, 0)
}

// days gives the windows of three days in the order in which they were cut, those
// that were cut at one time on one node together.
func days(each func(node string, cut []*profile.Window) error) error {
	n := 0
	for day := range 3 {
		for _, hour := range []int{0, 9, 23} {
			for burst := range 3 {
				start := golden.Epoch().AddDate(0, 0, day).Add(time.Duration(hour)*time.Hour + time.Duration(burst)*4*time.Minute)
				last := day == 2 && hour == 23 && burst == 2
				for _, node := range nodes {
					cut := []*profile.Window{machine(node, start, last)}
					for _, p := range programs() {
						cut = append(cut, make1(p, node, start, n))
					}
					if err := each(node, cut); err != nil {
						return err
					}
				}
				n++
			}
		}
	}
	return nil
}
