package agent

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
)

// The phases of a task.
const (
	phaseStarting = "starting"
	phaseRunning  = "running"
	phaseWaiting  = "waiting" // for a target
	phaseEnding   = "ending"  // its last windows are being shipped
	phaseDone     = "done"
	phaseFailed   = "failed"
)

const builtinID = "builtin"

// task is a profile that is being carried out.
type task struct {
	id         string
	profile    *spec.Profile
	until      int64     // when it ends by the server's clock, in ns; 0: never
	end        time.Time // when keepTime ends it; zero: never
	unsure     bool      // the clocks had not been compared when that was worked out
	began      time.Time // where that took a moment
	limited    bool      // to what is chosen
	chosen     map[string]bool
	instances  profile.Instances       // in the fleet, where it is limited
	rates      map[string]profile.Rate // that are ordered, by service
	recordings []*recording
	phase      string
	message    string
	caveat     string // what of the profile is not carried out; empty: all is
	targets    int
	missing    time.Time // since when it has had none; zero: it has some
	came       time.Time // when it was ordered
	over       bool      // its recordings have ended
	last       spool.ID  // and this was its last bundle
}

// recording is one event of a task.
type recording struct {
	spec.Recording
	task     *task
	sampler  Recording // nil: not begun
	starting bool      // somebody is at it
	aimed    map[int]bool
	edge     time.Time            // of its window, or when it is tried again
	look     time.Time            // when to see how full its tables are; zero: never
	parts    [][]*profile.Window  // of the window, cut before its edge, each split by target
	extent   profile.Head         // when these were
	turned   time.Time            // when the window began
	let      map[string]time.Time // targets that were chosen once, and until when
	letAll   time.Time            // until when all were that match; zero: they are, or never were
	behind   bool                 // processes have become targets since the last cut
	caught   time.Time            // when a window was last cut early for such ones
	late     bool                 // a crew's first cut is not over: it has begun then
	clock    reading              // when the window began
	leaving  bool                 // a crew is to cut its last windows, or has
	rate     float64              // Hz: the highest of its targets
	wanted   float64              // what that would be without a budget
	rates    rates                // of the window that is filled
	next     *rates               // from its edge on; nil: the same
	soloists map[string]*soloist  // by target, where the agent is alone
	balances balances             // of its targets: sampled and exact time
	spent    profile.Cost         // by its samples, since the sampler began
	cost     profile.Cost         // and since the last edge
}

func newTask(id string, p *spec.Profile, end time.Time) *task {
	t := &task{id: id, profile: p, end: end, phase: phaseStarting}
	for _, r := range p.Recordings() {
		t.recordings = append(t.recordings, &recording{Recording: r, task: t, aimed: map[int]bool{}, rate: p.Frequency, wanted: p.Frequency})
	}
	return t
}

// understood tells whether there is something in a task that we could carry out.
func (t *task) understood() bool { return len(t.recordings) > 0 }

// everything tells whether all targets are the task's.
func (t *task) everything() bool { return t.profile.All() && !t.limited }

// means tells whether a target is one of the task's.
func (t *task) means(target profile.Labels) bool {
	return t.profile.Matches(target) && (!t.limited || t.chosen[target.String()])
}

// aim has a recording follow its targets, and leave what is known not to be one.
// It tells whether any is sampled only from the next cut on.
func (r *recording) aim(wanted, others []int) (fresh bool) {
	var add []int
	for _, pid := range wanted {
		if !r.aimed[pid] {
			add = append(add, pid)
		}
	}
	if len(add) == 0 && len(r.aimed) == 0 {
		return false
	}
	fresh = r.sampler.Aim(add, others)
	clear(r.aimed)
	for _, pid := range wanted {
		r.aimed[pid] = true
	}
	return fresh
}

// start begins a recording. Programs take a moment to load; nothing waits for
// that.
func (a *Agent) start(r *recording) {
	p := r.task.profile
	a.setOut(r)
	r.spent = profile.Cost{}
	w := Wanted{Event: r.Event, Kernel: p.Kernel, Frequency: r.rate, Window: p.Window, All: !r.aims(), Adapts: r.adapts(), MayAttach: p.AllowAttach}
	if w.Adapts {
		w.Slot = p.Slot()
	}
	r.starting, r.edge, r.leaving, r.behind = true, time.Time{}, false, false
	r.let, r.letAll = nil, time.Time{}
	clear(r.aimed)
	a.starting++
	go func() {
		defer a.options.Account.Begin(cputime.Following)()
		sampler, err := a.options.Record(w)
		a.started <- start{r, sampler, err}
	}()
}

// start is how the start of a recording has ended.
type start struct {
	of      *recording
	sampler Recording
	err     error
}

// begun takes a recording that has been started. It returns an error if that
// one is for good: the built-in task cannot run at all. Whoever starts an agent
// is told at once; where it comes later, in place of what was ordered, want of
// memory or descriptors may pass, and what else is recorded goes on.
func (a *Agent) begun(s start) error {
	r, t := s.of, s.of.task
	r.starting = false
	a.starting--
	if s.err == nil {
		r.sampler = s.sampler
		a.own.changed()
	}
	switch {
	case t.over:
		a.close(r)
		return nil
	case s.err != nil && t == a.trial && t.phase == phaseStarting:
		return s.err
	case s.err != nil:
		a.fail(r, s.err)
		return nil
	}
	crew, slow := r.sampler.(Crew)
	if t.phase == phaseStarting && !slow {
		a.beginLate(t)
	}
	r.late = slow && t.phase == phaseStarting
	t.phase, t.message, r.clock = phaseRunning, "", a.shipper.reading()
	wait := a.untilEdge(r)
	if t.id == builtinID && a.options.First > 0 {
		wait = min(wait, a.options.First)
		a.options.First = 0
	}
	if a.aim(); r.sampler == nil || r.leaving { // its last target has left meanwhile
		return nil
	}
	if slow {
		a.cutCrew(r, crew, false) // it begins what it was just aimed at
	} else if r.aims() { // what it was just aimed at is sampled from the next window on: begin one
		if _, err := r.sampler.Cut(); err != nil {
			a.breakOff(r, err)
			return nil
		}
	}
	r.behind = false
	if r.edge = time.Now().Add(wait); !slow {
		r.look = r.nextLook(time.Now())
	}
	a.wakeReport()
	return nil
}

// beginLate has a task last as long as was asked, though it took a moment to begin.
func (a *Agent) beginLate(t *task) {
	if !t.end.IsZero() && !t.over {
		t.began = time.Now()
		t.end = t.lasting(t.end)
	}
}

// lasting is when a task ends that was to end at a time, by when it began.
func (t *task) lasting(end time.Time) time.Time {
	if t.began.IsZero() || end.IsZero() {
		return end
	}
	return earlier(t.began.Add(t.profile.Duration), end.Add(lateStart))
}

// ends is when a task ends; zero: never. One that is about to begin is waited for:
// on a busy machine that takes longer than a short recording lasts.
func (t *task) ends() time.Time {
	end := t.plausible()
	for _, r := range t.recordings {
		if !end.IsZero() && (r.late || r.starting && t.phase == phaseStarting) {
			return end.Add(lateStart)
		}
	}
	return end
}

// untilEdge is how long it takes until a window has to be cut to end with the
// clock's. A crew's is not cut twice for one edge, however its lead changes.
func (a *Agent) untilEdge(r *recording) time.Duration {
	length, lead := a.window(r.task), time.Duration(0)
	if c, ok := r.sampler.(Crew); ok {
		length, lead = r.task.profile.Window, c.Lead()
	}
	wait := untilEdge(a.options.Now().Add(lead), length)
	if lead > 0 && wait < length/2 {
		wait += length
	}
	return wait
}

// lateStart is by how much a task may end later because it began later.
const lateStart = 5 * time.Second

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// fail says why a recording does not run, and has it tried again.
func (a *Agent) fail(r *recording, err error) {
	a.log.Error("record", "task", r.Task, "error", err)
	r.task.phase, r.task.message = phaseFailed, err.Error()
	r.edge, r.look = time.Now().Add(tryAgain), time.Time{}
	a.wakeReport()
}

// breakOff closes a recording that could not be cut, and says why. What was cut of
// its window before is kept.
func (a *Agent) breakOff(r *recording, err error) {
	a.keepWindow(r, a.shipper.reading())
	a.close(r)
	a.fail(r, fmt.Errorf("cut a window: %w", err))
}

// end cuts the last windows of a task and closes its recordings.
func (a *Agent) end(t *task) {
	t.over = true
	for _, r := range t.recordings {
		a.conclude(r)
	}
}

// conclude cuts a recording's last window and closes it.
func (a *Agent) conclude(r *recording) {
	if crew, ok := r.sampler.(Crew); ok && !r.starting {
		a.cutCrew(r, crew, true) // it is closed then
	} else if r.sampler != nil && !r.starting {
		a.cut(r)
		a.close(r)
	}
	r.edge, r.look = time.Time{}, time.Time{}
}

// close closes a recording. The kernel takes a moment to let programs go.
func (a *Agent) close(r *recording) {
	if r.sampler == nil {
		return
	}
	a.account(r)
	a.own.changed()
	sampler := r.sampler
	r.sampler = nil
	a.closing.Go(func() {
		if err := sampler.Close(); err != nil {
			a.log.Error("end a recording", "task", r.Task, "error", err)
		}
	})
}

// The tables of the kernel hold some 30,000 rows, and are looked at so often
// that they are not full at the look after the next.
const (
	lookSamples = 4000
	lookLeast   = 100 * time.Millisecond
	lookCounted = time.Second // of events that are no clocks
	fullEnough  = 0.4
)

// nextLook is when to see how full the tables are: never, where a window cannot
// fill them. What is no clock has no rate that would tell: system calls come
// 100,000 times a second where a profile says 19, and each is recorded.
func (r *recording) nextLook(now time.Time) time.Time {
	perSecond := r.rate * float64(runtime.NumCPU())
	every := max(lookLeast, time.Duration(lookSamples/perSecond*float64(time.Second)))
	switch {
	case !isClock(r.Event):
		every = min(every, lookCounted)
	case perSecond*r.task.profile.Window.Seconds() < lookSamples:
		return time.Time{}
	}
	return now.Add(every)
}

// isClock tells whether an event comes at the profile's frequency.
func isClock(event string) bool {
	name, _, _ := strings.Cut(event, ":")
	return name == "cpu" || strings.HasSuffix(name, "-clock")
}

// relieve cuts a window before its edge where the tables of the kernel fill.
func (a *Agent) relieve(r *recording, now time.Time) {
	if r.sampler == nil || r.look.IsZero() || now.Before(r.look) {
		return
	}
	r.look = r.nextLook(now)
	if r.sampler.Full() >= fullEnough {
		a.cutEarly(r)
	}
}

// cutEarly cuts a part of a window before its edge.
func (a *Agent) cutEarly(r *recording) {
	w, err := r.sampler.Cut()
	if err != nil {
		a.breakOff(r, err)
		return
	}
	a.hold(r, w, r.rates)
	r.behind = false
}

// cut ends a recording's window and spools what it holds. A spool that cannot
// take it does not end the agent: the windows are shipped from memory, once.
func (a *Agent) cut(r *recording) {
	r.edge = time.Now().Add(a.untilEdge(r))
	a.adopt(r)
	r.behind = false
	if crew, ok := r.sampler.(Crew); ok {
		a.cutCrew(r, crew, false)
		return
	}
	w, err := r.sampler.Cut()
	next := a.shipper.reading()
	if err != nil {
		a.breakOff(r, err)
		return
	}
	a.hold(r, w, r.turn())
	a.keepWindow(r, next)
}

// keep spools windows of a recording, whose next window begins when the clock is
// as it was read.
func (a *Agent) keep(r *recording, parts []*profile.Window, next reading) {
	r.forget()
	clock := r.clock
	if r.clock = next; !clock.known {
		clock = next
	}
	if len(parts) > 0 { // else the next window tells what this one took
		apportion(a.charge(r), parts)
	}
	var records [][]byte
	for _, part := range parts {
		part.Task, part.Instances = r.Task, r.task.instances
		part.ClockOffset, part.ClockError = clock.of()
		if r.task.over && part.Watched > 0 { // the machine's own: by these it is told when somebody watched
			part.Farewell = true
		}
		if a.options.Functions != nil {
			a.options.Functions.Add(part, r.task.profile.Top)
		}
		a.decideAlone(r, part)
		if data := a.seal(part); data != nil {
			records = append(records, data)
		}
	}
	if len(records) == 0 {
		return
	}
	defer a.observe(parts)
	var err error
	if a.spooled, err = a.spool(records, parts); err != nil {
		a.log.Error("spool windows", "windows", len(records), "error", err)
		a.shipper.direct(a.spooled, records)
		return
	}
	a.shipper.wake()
}

// seal makes a record of a window; nil if that cannot be.
func (a *Agent) seal(w *profile.Window) []byte {
	data, err := proto.Marshal(wire.Seal(w, a.run))
	if err != nil {
		a.log.Error("seal a window", "target", w.Target, "error", err)
		return nil
	}
	return data
}

// named has the names of a window filled in. One without them is better than none.
func (a *Agent) named(from Recording, w *profile.Window) *profile.Window {
	named, err := from.Name(context.Background(), w)
	if err != nil {
		a.log.Error("name a window", "error", err)
		return w
	}
	return named
}
