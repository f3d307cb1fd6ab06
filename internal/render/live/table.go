package live

import (
	"cmp"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

// Rolling is the digests of the last seconds. The zero value keeps one window.
type Rolling struct {
	Span    time.Duration // how far back it reaches
	digests []*Digest
}

// Add takes the newest window and drops those that are too old.
func (r *Rolling) Add(d *Digest) {
	r.digests = append(r.digests, d)
	total := time.Duration(0)
	for i := len(r.digests) - 1; i >= 0; i-- {
		total += r.digests[i].head.Duration
		if total >= r.Span {
			r.digests = slices.Delete(r.digests, 0, i)
			return
		}
	}
}

// Table adds the digests up. What only the caller knows of the head it fills in.
func (r *Rolling) Table() Table {
	sum := Digest{functions: map[profile.FrameKey]*functionSums{}, threads: map[threadKey]*threadSums{}}
	for _, d := range r.digests {
		sum.merge(d)
	}
	t := Table{Head: sum.tableHead(), Functions: []Function{}, Threads: []Thread{}}
	names := make(map[profile.FrameKey]string, len(sum.functions))
	for key, s := range sum.functions {
		names[key] = s.frame.Function
		t.Functions = append(t.Functions, sum.row(s))
	}
	for _, s := range sum.threads {
		t.Threads = append(t.Threads, sum.threadRow(s, names))
	}
	slices.SortFunc(t.Functions, compareFunctions)
	slices.SortFunc(t.Threads, func(a, b Thread) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.N, a.N), cmp.Compare(a.TID, b.TID))
	})
	return t
}

// OwnCode gives a table of the developers' own functions, in which self is what
// each used itself and in code of others that it called.
func OwnCode(t Table) Table {
	t.OwnCode = true
	all := t.Functions
	t.Functions = []Function{}
	for _, f := range all {
		if f.OwnN == 0 && !profile.ParseClass(f.Class).Own() {
			continue
		}
		f.Self, f.SelfLow, f.SelfHigh, f.Rate, f.N = f.Own, f.OwnLow, f.OwnHigh, f.OwnRate, f.OwnN
		if f.Total == 0 {
			f.Total = f.Own
		}
		t.Functions = append(t.Functions, f)
	}
	slices.SortFunc(t.Functions, compareFunctions)
	return t
}

// AllCode gives a table without the rows that stand for no function.
func AllCode(t Table) Table {
	t.Functions = slices.DeleteFunc(slices.Clone(t.Functions), func(f Function) bool { return f.Total == 0 && f.Own > 0 })
	return t
}

func compareFunctions(a, b Function) int {
	return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Function, b.Function), cmp.Compare(a.Place, b.Place))
}

func (d *Digest) merge(o *Digest) {
	duration := d.head.Duration + o.head.Duration
	idle, watched, exact := d.head.Idle+o.head.Idle, d.head.Watched+o.head.Watched, d.head.Exact
	exact.Add(o.head.Exact)
	losses := d.head.Losses
	d.head = o.head // the newest one's types and design
	d.head.Duration, d.head.Idle, d.head.Watched, d.head.Exact, d.head.Losses = duration, idle, watched, exact, losses
	for _, l := range o.head.Losses {
		d.head.AddLoss(l)
	}
	d.samples += o.samples
	d.value += o.value
	d.squares += o.squares
	for key, s := range o.functions {
		mine := d.functions[key]
		if mine == nil {
			mine = &functionSums{frame: s.frame}
			d.functions[key] = mine
		}
		add(&mine.self, s.self)
		add(&mine.own, s.own)
		add(&mine.total, s.total)
	}
	for _, s := range o.threads {
		mine := d.thread(s.thread)
		mine.thread.Exact.Add(s.thread.Exact)
		mine.n += s.n
		for key, n := range s.leaves {
			mine.leaves[key] += n
		}
	}
}

func (d *Digest) tableHead() Head {
	h := Head{Span: d.head.Duration, Samples: d.samples, Value: d.value, CPU: d.head.Exact.CPU,
		Lost:      d.head.LossOf(profile.LossDropped).N,
		Truncated: d.head.LossOf(profile.LossTruncated).N + d.head.LossOf(profile.LossStarting).N,
		Unnamed:   d.head.LossOf(profile.LossUnsymbolized).N,
		Lacks:     render.Losses(d.losses(), d.samples, d.head.Exact.CPU).Line}
	if len(d.head.Types) > 0 {
		h.Event, h.Unit = d.head.Types[0].Kind, d.head.Types[0].Unit
	}
	if d.head.Watched > 0 {
		h.Idle = min(float64(d.head.Idle)/float64(d.head.Watched), 1)
	}
	return h
}

func (d *Digest) row(s *functionSums) Function {
	self, own := d.share(s.self), d.share(s.own)
	return Function{Function: s.frame.Function, Place: place(s.frame), Kind: s.frame.Kind.String(), Class: s.frame.Class.String(),
		Self: self.Value, SelfLow: self.Low, SelfHigh: self.High, Rate: d.rate(s.self),
		Own: own.Value, OwnLow: own.Low, OwnHigh: own.High, OwnRate: d.rate(s.own),
		Total: d.share(s.total).Value, N: s.self.N, OwnN: s.own.N}
}

// rate is how much there was a second: CPUs, for clocks.
func (d *Digest) rate(s profile.Sum) float64 {
	seconds := d.head.Duration.Seconds()
	if seconds <= 0 {
		return 0
	}
	rate := float64(s.Value) / seconds
	if d.clock() {
		rate /= float64(time.Second)
	}
	return rate
}

// clock tells whether values are time.
func (d *Digest) clock() bool { return len(d.head.Types) > 0 && d.head.Types[0].Unit == "nanoseconds" }

func (d *Digest) share(part profile.Sum) stats.Interval {
	if d.value == 0 {
		return stats.Interval{}
	}
	if d.head.Design == profile.DesignCensus { // nothing was left to chance
		v := float64(part.Value) / float64(d.value)
		return stats.Interval{Value: v, Low: v, High: v}
	}
	return stats.Share(stats.Sums{N: part.N, Weight: float64(part.Value), Squares: part.Squares},
		stats.Sums{N: d.samples, Weight: float64(d.value), Squares: d.squares})
}

func (d *Digest) threadRow(s *threadSums, names map[profile.FrameKey]string) Thread {
	t := Thread{PID: s.thread.PID, TID: s.thread.TID, Process: s.thread.Process, Name: s.thread.Name, N: s.n}
	if d.head.Duration > 0 {
		t.CPU = float64(s.thread.Exact.CPU) / float64(d.head.Duration)
	}
	most := int64(0)
	for key, n := range s.leaves {
		if name := names[key]; n > most || n == most && name < t.Top {
			most, t.Top = n, name
		}
	}
	if s.n > 0 {
		t.TopSelf = float64(most) / float64(s.n)
	}
	return t
}

// losses are those of all that was added up, with CPU time that was certainly not sampled.
func (d *Digest) losses() []profile.Loss {
	missing := d.head.Balance(profile.Sum{N: d.samples, Value: d.value, Squares: d.squares}).Loss()
	if missing.Value == 0 {
		return d.head.Losses
	}
	return append(slices.Clone(d.head.Losses), missing)
}
