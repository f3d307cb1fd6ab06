package agent

import (
	"fmt"
	"maps"
	"runtime"
	"time"

	"atys.dev/atys/internal/agent/pipeline"
	state "atys.dev/atys/internal/agent/recording"
	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
)

// recording is one measurement of a task.
type recording struct {
	spec.Recording
	task       *task
	instrument state.Recording
	line       pipeline.Line
	inFlight   int                  // windows in the pipeline
	open       int                  // windows of tiny targets that go on
	edge       time.Time            // end of the window, or when the recording is started again
	look       time.Time            // when to check how full the tables are; zero: never
	turned     time.Time            // when the window began
	cuts       int                  // so far
	checked    chan struct{}        // closed when it is known how full the tables are; nil: nobody has asked
	let        map[string]time.Time // targets that were chosen once, and until when
	keeps      *pipeline.Kept       // what kept returned, while that holds; nil: it does not
	letAll     time.Time            // until when all matching targets were chosen; zero: they are, or never were
	behind     bool                 // processes have become targets since the last cut
	caught     time.Time            // when a window was last cut early because of that
	late       bool                 // the task begins when the first cut has ended
	overdue    bool                 // an edge has passed during the current cut
	clock      reading              // when the window began
	rate       float64              // Hz: the highest of its targets
	wanted     float64              // the same without a budget
	rates      rates                // of the current window
	next       *rates               // of the next window; nil: the same
	soloists   map[string]*soloist  // by target, while the agent decides alone
	spent      profile.Cost         // of samples, since the sampler was opened
	cost       profile.Cost         // of samples, since the last edge
}

// start is the result of opening a sampler.
type start struct {
	of      *recording
	sampler sampler.Sampler
	err     error
}

// why is the reason for which a window is cut.
type why int

const (
	toAim  why = iota // the first targets are sampled from the next window on
	early             // the window goes on; this is a part of it
	atEdge            // the window ends
	atEnd             // the window ends, and none follows
)

// cut is a cut of a recording and its result.
type cut struct {
	of      *recording
	why     why
	at      rates // of the window
	namer   sampler.Namer
	apart   bool
	windows []*profile.Window
	clock   reading // at the beginning of the next window
	err     error
}

// start opens the sampler of a recording, in another goroutine: programs take a moment to
// load.
func (c *conductor) start(r *recording) {
	p := r.task.profile
	r.setOut(&c.spending)
	r.spent = profile.Cost{}
	w := Wanted{Measurement: r.Measurement, Kernel: p.Kernel, Frequency: r.rate, Window: p.Window, All: !r.aims(), Adapts: r.adapts(), MayAttach: p.AllowAttach}
	if w.Rate > 0 {
		w.Rate = r.rate
	}
	if w.Adapts {
		w.Slot = p.Slot()
	}
	r.edge, r.behind = time.Time{}, false
	r.let, r.letAll, r.keeps = nil, time.Time{}, nil
	r.instrument.Begin()
	c.busy[r] = true
	go func() {
		defer c.options.Account.Begin(cputime.Following)()
		s, err := c.options.Record(w)
		send(c.started, start{r, s, err}, c.gone)
	}()
}

// begun continues the start of a recording once its sampler is open. It returns an error
// only if the agent cannot record anything: the built-in task it started with failed. Whoever
// starts an agent should learn that at once. Later failures may pass, such as those for want
// of memory, and other recordings go on.
func (c *conductor) begun(s start) error {
	r, t := s.of, s.of.task
	delete(c.busy, r)
	if s.err == nil {
		r.instrument.Opened(s.sampler, !r.aims())
		c.own.changed()
	}
	switch {
	case r.instrument.State() != state.Starting: // it was told to leave meanwhile
		c.close(r)
		return nil
	case s.err != nil && r.Kind == spec.KindOffCPU: // which not all kernels can, and CPU time goes on
		c.log.Error("sample time off the CPU", "task", r.Task, "error", s.err)
		c.close(r)
		return nil
	case s.err != nil && t == c.trial && t.phase == phaseStarting:
		c.close(r)
		return s.err
	case s.err != nil:
		c.fail(r, s.err)
		return nil
	}
	r.late = t.phase == phaseStarting
	t.phase, t.message, r.clock = phaseRunning, "", c.shipper.reading()
	if c.aim(); r.instrument.State() == state.Leaving { // its last target has left meanwhile
		c.close(r)
		return nil
	}
	if r.instrument.Follows() {
		c.cut(r, toAim)
	} else {
		c.running(r)
	}
	return nil
}

// running begins the first window of a recording.
func (c *conductor) running(r *recording) {
	r.instrument.Began()
	if r.late {
		r.late = false
		r.task.beginLate()
	}
	wait := c.spending.untilEdge(r)
	if r.task.id == builtinID && c.options.First > 0 {
		wait = min(wait, c.options.First)
		c.options.First = 0
	}
	if r.edge = time.Now().Add(wait); r.instrument.Relievable() {
		r.look = r.nextLook(time.Now())
	}
	c.wakeReport()
}

// untilEdge returns the time until a window has to be cut to end at the next edge of the
// clock. One that takes long to cut is not cut twice for one edge, however its lead changes.
func (s *spending) untilEdge(r *recording) time.Duration {
	length, lead := s.window(r.task), r.instrument.Lead()
	if r.instrument.Delayed() {
		length = r.task.profile.Window
	}
	wait := untilEdge(s.options.Now().Add(lead), length)
	if lead > 0 && wait < length/2 {
		wait += length
	}
	return wait
}

// turn ends the window of a recording at an edge of the clock. If an earlier cut has not
// ended, the window ends after it.
func (c *conductor) turn(r *recording) {
	r.edge = time.Now().Add(c.spending.untilEdge(r))
	if r.overdue = r.instrument.State() == state.Cutting; r.instrument.State() != state.Running {
		return
	}
	var meant []*targets.Present
	if r.adapts() {
		meant, _ = c.census.Choose(r.task.means)
		r.keepSoloists(meant, c.alone(r.task.profile.Window))
	}
	if err := r.adopt(&c.spending, meant); err != nil {
		c.log.Error("change the frequency", "task", r.Task, "error", err)
	}
	c.cut(r, atEdge)
}

// cut cuts a window in another goroutine, which may take long.
func (c *conductor) cut(r *recording, w why) {
	d := cut{of: r, why: w, at: r.rates, namer: r.instrument.Namer(), apart: r.instrument.Delayed()}
	r.behind = false
	r.cuts++
	if w == atEdge || w == atEnd || d.apart {
		r.turned, d.at = time.Now(), r.swap()
	}
	if w == early || w == atEdge {
		r.instrument.Cut()
	}
	s := r.instrument.Sampler()
	c.busy[r] = true
	go func() {
		defer c.options.Account.Begin(cputime.Shipping)()
		d.windows, d.err = s.Cut(sampler.Edge{First: w == toAim, Last: w == atEnd})
		d.clock = c.shipper.reading()
		send(c.cuts, d, c.gone)
	}()
}

// hasCut continues a recording after a cut.
func (c *conductor) hasCut(d cut) {
	r := d.of
	delete(c.busy, r)
	if d.apart && len(d.windows) > 0 || !d.apart && d.why != toAim { // before it was aimed it sampled nothing
		c.hand(d)
	}
	leaves := r.instrument.State() == state.Leaving
	switch {
	case r.instrument.Sampler() == nil: // it was closed, since the cut took too long
	case d.err != nil:
		c.fail(r, fmt.Errorf("cut a window: %w", d.err))
		if leaves {
			r.edge = time.Time{}
		}
	case d.why == atEnd:
		c.close(r)
	case leaves:
		c.cut(r, atEnd)
	case d.why == toAim:
		c.running(r)
		c.admit(r) // processes that have become ready during the cut
	default:
		r.instrument.Resume()
		if c.admit(r); r.overdue && !d.apart {
			c.turn(r)
		}
	}
}

// hand adds what was cut to the pipeline. If the cut failed, earlier parts of the window are
// kept.
func (c *conductor) hand(d cut) {
	r := d.of
	piece, kept := &pipeline.Piece{Last: d.why == atEnd || d.err != nil, Long: c.spending.long(r)}, r.kept()
	commands := c.spending.commands(r, kept == nil)
	identify := func(threads []profile.Thread) ([]profile.Labels, int) { return c.census.Of(threads, commands) }
	for _, w := range d.windows {
		piece.Cuts = append(piece.Cuts, &pipeline.Cut{Window: w, Identify: identify, Kept: kept, Rates: r.sampledAt(d.at), Namer: d.namer, Apart: d.apart})
	}
	if d.why != early || d.apart || d.err != nil { // the window ends
		r.forget()
		clock := r.clock
		if r.clock = d.clock; !clock.known {
			clock = d.clock
		}
		piece.Ends = &profile.Head{Instances: r.task.instances, Cost: c.spending.charge(r, c.tasks), Farewell: d.why == atEnd && r.task.over}
		piece.Ends.ClockOffset, piece.Ends.ClockError = clock.of()
		r.inFlight++
		c.inFlight++
	}
	if r.line.Delivered == nil {
		r.line.Delivered = func(done pipeline.Delivery) { send(c.arrived, delivery{r, done}, c.gone) }
	}
	c.pipeline.Add(&r.line, piece)
}

// kept returns which targets' samples are kept: those that the task selects, or has
// selected since the window began. nil: all. The answer is that of now, whatever the task
// selects later.
func (r *recording) kept() []*pipeline.Kept {
	t, let, letAll := *r.task, maps.Clone(r.let), !r.letAll.IsZero()
	if t.everything() || t.profile.All() && letAll {
		return nil
	}
	if r.keeps == nil {
		r.keeps = &pipeline.Kept{Means: func(target profile.Labels) bool {
			if t.means(target) {
				return true
			}
			_, once := let[target.String()]
			return (once || letAll) && t.profile.Matches(target)
		}}
	}
	return []*pipeline.Kept{r.keeps}
}

// forget deletes targets that were no longer chosen when the current window began, which may
// be long before the cut of the last one ended.
func (r *recording) forget() {
	for key, until := range r.let {
		if !until.After(r.turned) {
			delete(r.let, key)
			r.keeps = nil
		}
	}
	if !r.letAll.IsZero() && !r.letAll.After(r.turned) {
		r.letAll, r.keeps = time.Time{}, nil
	}
}

// fail closes a recording that cannot go on, and starts it again later.
func (c *conductor) fail(r *recording, err error) {
	c.close(r)
	c.log.Error("record", "task", r.Task, "error", err)
	r.task.phase, r.task.message = phaseFailed, err.Error()
	r.edge, r.look = time.Now().Add(tryAgain), time.Time{}
	c.wakeReport()
}

// end ends the recordings of a task.
func (c *conductor) end(t *task) {
	t.over = true
	for _, r := range t.recordings {
		c.conclude(r)
	}
}

// conclude cuts the last window of a recording, which is closed after that.
func (c *conductor) conclude(r *recording) {
	if r.instrument.Leave() {
		c.cut(r, atEnd)
	}
	r.edge, r.look = time.Time{}, time.Time{}
}

// close closes a sampler in another goroutine: the kernel takes a moment to unload programs.
func (c *conductor) close(r *recording) {
	c.spending.account(r)
	c.own.changed()
	s := r.instrument.Release()
	if s == nil {
		return
	}
	checked := r.checked
	c.closing.Go(func() {
		if checked != nil {
			<-checked // its tables are being read
		}
		if err := s.Close(); err != nil {
			c.log.Error("end a recording", "task", r.Task, "error", err)
		}
	})
}

// The kernel's tables hold some 30,000 rows. They are checked so often that they are not
// full at the check after the next.
const (
	lookSamples = 4000
	lookLeast   = 100 * time.Millisecond
	lookCounted = time.Second // if events are counted
	fullEnough  = 0.4
)

// nextLook returns when to check how full the tables are; zero: never, since a window
// cannot fill them. Events have no known rate: a profile may say 19 Hz, and each of 100,000
// system calls a second is recorded.
func (r *recording) nextLook(now time.Time) time.Time {
	perSecond := r.rate * float64(runtime.NumCPU())
	every := max(lookLeast, time.Duration(lookSamples/perSecond*float64(time.Second)))
	switch {
	case r.Rate == 0:
		every = min(every, lookCounted)
	case perSecond*r.task.profile.Window.Seconds() < lookSamples:
		return time.Time{}
	}
	return now.Add(every)
}

// fullness is how full the tables of a recording are.
type fullness struct {
	of   *recording
	cuts int // at the time
	part float64
}

// check finds out in another goroutine how full the tables of a recording are, if it is time
// to: a cut of another recording may hold them.
func (r *recording) check(now time.Time, account *cputime.Account, tell func(fullness)) {
	if r.instrument.State() != state.Running || r.look.IsZero() || now.Before(r.look) {
		return
	}
	if r.look = r.nextLook(now); r.checked != nil { // it is set in any case: keepTime would spin on one that is past
		return
	}
	s, ended := r.instrument.Relieved(), make(chan struct{})
	r.checked = ended
	f := fullness{of: r, cuts: r.cuts}
	go func() {
		defer account.Begin(cputime.Following)()
		f.part = s.Full()
		close(ended)
		tell(f)
	}()
}

// hasFilled cuts a window before its edge if the kernel's tables fill up, unless it has been
// cut meanwhile.
func (c *conductor) hasFilled(f fullness) {
	r := f.of
	r.checked = nil
	if r.instrument.State() == state.Running && r.cuts == f.cuts && f.part >= fullEnough {
		c.cut(r, early)
	}
}
