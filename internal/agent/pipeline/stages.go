package pipeline

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
)

// job is a piece on its way through the stages.
type job struct {
	*Piece
	line    *Line
	parts   []*profile.Window // from split on: of the whole window, one of each target
	length  time.Duration     // of the window; 0: each part has its own
	tiny    int               // targets with few samples in it
	open    int               // those whose windows go on
	records [][]byte          // from seal on
}

// identify finds the targets of pieces, until there are no more.
func (p *Pipeline) identify() {
	defer p.identified.close()
	patience := lastMoment
	for {
		line, piece := p.added.take()
		if piece == nil {
			return
		}
		for _, c := range piece.Cuts {
			if c.Targets != nil {
				continue
			}
			targets, brief := p.targetsOf(c, patience)
			if c.unknown = targets == nil; c.unknown {
				p.options.Log.Warn("keep a window without knowing its targets: the agent ends, and /proc takes too long")
				targets, patience = p.byName(c.Window.Threads), 0
			}
			c.Targets = TargetsOf(c.Window.Threads, targets)
			piece.brief += brief
		}
		p.identified.put(line, piece)
	}
}

// lastMoment is how long the targets of a cut are waited for when the agent ends. A /proc that
// answers needs less; once it has not, no further cut waits.
const lastMoment = 100 * time.Millisecond

// targetsOf returns the targets of a cut's threads. It waits as long as the agent runs, and for
// patience once the agent ends; nil: they did not come in time.
func (p *Pipeline) targetsOf(c *Cut, patience time.Duration) (targets []profile.Labels, brief int) {
	type found struct {
		targets []profile.Labels
		brief   int
	}
	threads, result := c.Window.Threads, make(chan found, 1)
	go func() {
		defer p.options.Account.Begin(cputime.Shipping)()
		targets, brief := c.Identify(threads)
		result <- found{targets, brief}
	}()
	select {
	case f := <-result:
		return f.targets, f.brief
	case <-p.work.Done():
	}
	select {
	case f := <-result:
		return f.targets, f.brief
	case <-time.After(patience):
		return nil, 0
	}
}

// byName returns targets for threads that could not be identified: each process is a service of its
// own name, as processes are that ended before they were looked at.
func (p *Pipeline) byName(threads []profile.Thread) []profile.Labels {
	targets := make([]profile.Labels, len(threads))
	for i := range threads {
		targets[i] = maps.Clone(p.options.Machine)
		targets[i][store.ServiceLabel] = wire.FitLabel(threads[i].Process)
	}
	return targets
}

// prune comes before all that takes long, so that no other stage works for what it leaves
// out.
func (p *Pipeline) prune(j *job) bool {
	for _, c := range j.Cuts {
		if j.line.Pruning > 0 {
			prune.Window(c.Window, j.line.Pruning, c.Targets.groups(c.Window.Threads))
		}
	}
	return true
}

// symbolize fills in names. A window without them is better than none: the server may
// still find them.
func (p *Pipeline) symbolize(j *job) bool {
	for _, c := range j.Cuts {
		if c.Namer != nil {
			c.Window = p.named(c)
		}
	}
	return true
}

// named has the window of a cut named, for as long as names are waited for. Whoever names
// it has a copy of all that this changes, since it may go on after that.
func (p *Pipeline) named(c *Cut) *profile.Window {
	unnamed := c.Window
	w := *unnamed
	w.Locations, w.Names, w.Losses = slices.Clone(w.Locations), slices.Clone(w.Names), slices.Clone(w.Losses)
	result := make(chan *profile.Window, 1)
	go func() {
		named, err := c.Namer.Name(p.work, &w)
		if err != nil {
			p.options.Log.Error("name a window", "error", err)
			named = unnamed
		}
		result <- named
	}()
	select {
	case named := <-result:
		return named
	case <-p.work.Done():
		p.options.Log.Warn("keep a window without names: the agent ends, and they take too long")
		return unnamed
	}
}

func (p *Pipeline) refine(j *job) bool {
	for _, c := range j.Cuts {
		c.Window = refine.Window(c.Window, p.options.Rules[c.Window.Kind()]...)
	}
	return true
}

// mostParts bounds how many cuts of a window wait for its end: one that lasts an hour can
// have hundreds.
const mostParts = 32

// split makes a window of each target, and gathers those of a window until it ends.
func (p *Pipeline) split(j *job) bool {
	l, machine := j.line, p.options.Machine
	var apart [][]*profile.Window
	for _, c := range j.Cuts {
		parts := split(c.Window, c.Targets.each(c.Window.Threads), machine, l.Threads)
		l.balances.add(parts, machine)
		l.some = l.some || c.Kept != nil
		parts = c.keep(parts, machine)
		if c.Apart {
			apart = append(apart, moveLosses(parts, machine))
			continue
		}
		if c.Rates != nil {
			c.Rates.set(parts)
		}
		l.gather(parts, &profile.Head{Start: c.Window.Start, Duration: c.Window.Duration})
	}
	if len(apart) > 0 {
		parts := mergeTargets(apart, nil)
		if rates := j.Cuts[0].Rates; rates != nil {
			rates.set(parts)
		}
		l.gather(parts, nil)
	}
	l.brief += j.brief
	if j.Ends == nil {
		return false
	}
	j.brief, l.brief = l.brief, 0
	p.end(j)
	return true
}

// end ends the window of a line. Those of tiny targets may go on.
func (p *Pipeline) end(j *job) {
	l := j.line
	extent := l.extent
	j.parts = l.whole()
	var absent []*profile.Window
	if l.some { // whoever has no part in the window may have used something
		absent = l.tiny.without(j.parts)
	}
	l.some = false
	j.length = j.Long.Every // if it was to be cut, but could not
	if extent != nil {      // else each part has its own time, or there is none
		j.length = extent.Duration
		j.parts, j.tiny = l.tiny.lengthen(j.parts, extent, j.Long, p.options.Machine)
	}
	j.parts = append(absent, j.parts...)
	if j.Last {
		j.parts = append(j.parts, l.tiny.all()...)
	}
	l.ended, j.open = *j.Ends, len(l.tiny)
	if delete(p.lines, l); len(l.tiny) > 0 {
		p.lines[l] = true
	}
}

// rest ends the windows that still go on when there are no more pieces.
func (p *Pipeline) rest() (jobs []*job) {
	for l := range p.lines {
		ends := l.ended
		ends.Cost = profile.Cost{}
		jobs = append(jobs, &job{line: l, Piece: &Piece{Ends: &ends, Last: true}, parts: l.tiny.all()})
	}
	return jobs
}

// keep leaves out what the task does not mean, and the machine's own part unless it
// tells of losses.
func (c *Cut) keep(parts []*profile.Window, machine profile.Labels) []*profile.Window {
	if c.Kept == nil {
		return parts
	}
	if c.unknown {
		parts = c.lose(parts, machine)
	}
	return slices.DeleteFunc(parts, func(part *profile.Window) bool {
		return !c.keeps(part) && (part.Target.String() != machine.String() || len(part.Losses) == 0)
	})
}

func (c *Cut) keeps(part *profile.Window) bool {
	return slices.ContainsFunc(c.Kept, func(k *Kept) bool { return k.Means(part.Target) })
}

// lose counts what is left out of processes that have not been identified as a loss of the
// machine's own part: the task may have meant them.
func (c *Cut) lose(parts []*profile.Window, machine profile.Labels) []*profile.Window {
	var own *profile.Window
	lost := profile.Loss{Reason: profile.LossDropped, Detail: "the agent ended before it had identified the process"}
	for _, part := range parts {
		switch {
		case part.Target.String() == machine.String():
			own = part
		case !c.keeps(part):
			lost.N, lost.Value = lost.N+part.N(), lost.Value+part.Total(0)
		}
	}
	if lost.N == 0 {
		return parts
	}
	if own == nil {
		own = &profile.Window{Head: c.Window.Head}
		own.Target, own.Exact, own.Idle, own.Watched, own.Losses = machine, profile.Exact{}, 0, 0, nil
		own.Types, own.Comments = slices.Clone(own.Types), slices.Clone(own.Comments)
		parts = append(parts, own)
	}
	own.AddLoss(lost)
	return parts
}

// moveLosses has a window of one target carry the losses that belong to nobody: they are
// of the profiler that recorded only it.
func moveLosses(parts []*profile.Window, machine profile.Labels) []*profile.Window {
	if len(parts) != 2 {
		return parts
	}
	for i, p := range parts {
		if other := parts[1-i]; p.Target.String() == machine.String() && other.Target.String() != machine.String() {
			for _, l := range p.Losses {
				other.AddLoss(l)
			}
			return []*profile.Window{other}
		}
	}
	return parts
}

// gather keeps the parts of one cut until their window ends.
func (l *Line) gather(parts []*profile.Window, span *profile.Head) {
	switch {
	case span == nil:
	case l.extent == nil:
		l.extent = span
	default:
		l.extent.Absorb(span)
	}
	if l.parts = append(l.parts, parts); len(l.parts) >= mostParts {
		extent := l.extent
		l.parts = [][]*profile.Window{l.whole()}
		l.extent = extent
	}
}

// whole returns what was gathered, as one window of each target. All cover the same
// time: a target that has begun or ended within it used nothing in the rest.
func (l *Line) whole() []*profile.Window {
	parts, extent := l.parts, l.extent
	l.parts, l.extent = nil, nil
	if len(parts) == 1 {
		return parts[0]
	}
	return mergeTargets(parts, extent)
}

// mergeTargets merges windows of the same target, unless they measure different things.
// They cover the time of extent, if it is given.
func mergeTargets(each [][]*profile.Window, extent *profile.Head) (all []*profile.Window) {
	var keys []string
	of := map[string][]*profile.Window{}
	for _, parts := range each {
		for _, p := range parts {
			key := p.Target.String()
			if of[key] == nil {
				keys = append(keys, key)
			}
			of[key] = append(of[key], p)
		}
	}
	for _, key := range keys {
		w, err := profile.Merge(of[key]...)
		if err != nil {
			all = append(all, of[key]...)
			continue
		}
		if extent != nil {
			w.Start, w.Duration = extent.Start, extent.Duration
		}
		all = append(all, w)
	}
	return all
}

// seal encodes the parts of a window.
func (p *Pipeline) seal(j *job) bool {
	apportion(j.Ends.Cost, j.parts)
	for _, part := range j.parts {
		part.Task, part.Instances = j.line.Task, j.Ends.Instances
		part.ClockOffset, part.ClockError = j.Ends.ClockOffset, j.Ends.ClockError
		if j.Ends.Farewell && part.Watched > 0 { // the machine's own, by which it is known when somebody watched
			part.Farewell = true
		}
		if p.options.Functions != nil {
			p.options.Functions.Add(part, j.line.Top)
		}
		if data := p.record(part); data != nil {
			j.records = append(j.records, data)
		}
	}
	return true
}

// record encodes a window; nil if that is impossible.
func (p *Pipeline) record(w *profile.Window) []byte {
	data, err := proto.Marshal(wire.Seal(w, p.options.Run))
	if err != nil {
		p.options.Log.Error("seal a window", "target", w.Target, "error", err)
		return nil
	}
	return data
}

// spool keeps records on disk. Those that it does not take are shipped from memory.
func (p *Pipeline) spool(j *job) bool {
	d := Delivery{Windows: j.windows, Parts: j.parts, Brief: j.brief, Tiny: j.tiny, Open: j.open}
	if len(j.parts) == 0 {
		d.Unspent = j.Ends.Cost
	}
	if len(j.records) > 0 {
		var err error
		if d.Bundle, err = p.keep(j.records, j.parts); err != nil {
			p.options.Log.Error("spool windows", "windows", len(j.records), "error", err)
			p.options.Unspooled(d.Bundle, j.records)
		}
	}
	d.Summary = health.Summarize(j.parts, p.options.Now())
	if j.length > 0 { // a longer window of a tiny target is not late
		d.Summary.Length = min(d.Summary.Length, j.length)
	}
	j.line.Delivered(d)
	return false
}

// apportion divides the cost of a window among its parts, in proportion to their samples.
func apportion(cost profile.Cost, parts []*profile.Window) {
	if len(parts) == 0 {
		return
	}
	counts, all, largest := make([]int64, len(parts)), int64(0), 0
	for i, p := range parts {
		counts[i] = p.N()
		if all += counts[i]; counts[i] > counts[largest] {
			largest = i
		}
	}
	rest := cost
	for i, p := range parts {
		if i == largest {
			continue
		}
		share := func(d time.Duration) time.Duration {
			return time.Duration(float64(d) * float64(counts[i]) / float64(max(all, 1)))
		}
		p.Cost = profile.Cost{User: share(cost.User), BPF: share(cost.BPF), Interrupt: share(cost.Interrupt)}
		rest.User, rest.BPF, rest.Interrupt = rest.User-p.Cost.User, rest.BPF-p.Cost.BPF, rest.Interrupt-p.Cost.Interrupt
	}
	parts[largest].Cost = rest
}
