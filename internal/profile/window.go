package profile

import (
	"math"
	"slices"
	"strings"
	"time"
)

// ValueType is one thing that was measured on each sample.
type ValueType struct {
	Kind   string // cpu, page-faults, sched:sched_switch ...
	Unit   string // nanoseconds, count, bytes
	Period int64  // units per sample, 0 where it varies or is unknown
}

// Design says how samples were chosen; estimators depend on it.
type Design string

const (
	DesignUnknown    Design = ""
	DesignCensus     Design = "census"     // every event was recorded
	DesignPeriodic   Design = "periodic"   // every n-th unit, fixed phase
	DesignRandomised Design = "randomised" // random phase, intervals drawn at random
	DesignThinned    Design = "thinned"    // each of a denser stream kept at random
	DesignSizeBiased Design = "size-biased"
)

// ClockUnknown is the error of a clock that was compared with no server's. It is
// the largest there is: who adds up errors keeps it, who does not know it believes
// nothing of the clock.
const ClockUnknown time.Duration = math.MaxInt64

// LossReason says why a sample is missing or incomplete.
type LossReason string

const (
	LossDropped      LossReason = "lost"            // the sampler had no room for it
	LossTruncated    LossReason = "truncated"       // counted, but frames are missing at the root
	LossUnsymbolized LossReason = "unsymbolized"    // counted, but its leaf has no name
	LossPruned       LossReason = "pruned"          // folded away by function selective pruning
	LossThreshold    LossReason = "below threshold" // shorter than the sampler looks at
	LossStarting     LossReason = "starting"        // truncated within 50 ms of exec or dlopen
	LossOther        LossReason = "other reasons"   // of more than are told apart

	// Of what samples are of: nobody knows how many there would have been.
	LossExact   LossReason = "exact times missing" // a thread exited, and what it used found no room
	LossTargets LossReason = "not sampled"         // a process found no room among the targets

	// CPU time that passed without being sampled. N is the samples that it would have
	// had, Value is the time. It is part of the exact time, and of no row.
	LossUnsampled LossReason = "CPU time not sampled"

	// Whole windows that never came. A later window of their machine tells it, and
	// counts them, since nobody knows what was in them.
	LossSpoolLimit  LossReason = "dropped by the spool's limit"
	LossSpoolDamage LossReason = "damaged in the spool"
	LossRefused     LossReason = "refused by the server"
	LossUnkept      LossReason = "kept nowhere" // the disk was full, and the server away

	// Windows, or stretches of a series, that the server could not read any more when
	// it added others up: what it made of those tells it.
	LossStoreDamage LossReason = "damaged in the store"
)

// OfWindows tells whether a loss counts windows.
func (r LossReason) OfWindows() bool {
	switch r {
	case LossSpoolLimit, LossSpoolDamage, LossRefused, LossUnkept, LossStoreDamage:
		return true
	}
	return false
}

// OfSamples tells whether a loss counts samples.
func (r LossReason) OfSamples() bool {
	switch r {
	case LossDropped, LossTruncated, LossUnsymbolized, LossPruned, LossThreshold, LossStarting, LossOther:
		return true
	}
	return false
}

// Unit is what a loss counts, in words. What a reason counts that a later version has
// added is not known: it is told by its own name, and added to nothing.
func (r LossReason) Unit() string {
	switch {
	case r.OfSamples():
		return "samples"
	case r.OfWindows():
		return "windows"
	case r == LossExact:
		return "threads"
	case r == LossTargets:
		return "processes"
	case r == LossUnsampled:
		return "missing samples"
	}
	return "others"
}

// Loss counts samples, or whatever else its reason is of, that are missing or incomplete for one reason.
type Loss struct {
	Reason LossReason
	Detail string // what exactly, in words; may be empty
	N      int64
	Value  int64 // in units of the first value type
}

// Exact is time the kernel accounted to something, as opposed to sampled.
type Exact struct {
	CPU, User, System time.Duration
	Source            string // which kernel figure this is
	IncludesInterrupt bool   // interrupt time is part of it
}

// Add sums two exact times of the same source.
func (e *Exact) Add(o Exact) {
	e.CPU += o.CPU
	e.User += o.User
	e.System += o.System
	e.IncludesInterrupt = e.IncludesInterrupt || o.IncludesInterrupt
	if e.Source == "" {
		e.Source = o.Source
	} else if o.Source != "" && o.Source != e.Source {
		e.Source = "mixed"
	}
}

// negative is what Add takes e away with. Its flag says nothing of the rest.
func (e Exact) negative() Exact {
	return Exact{CPU: -e.CPU, User: -e.User, System: -e.System, Source: e.Source}
}

// Cost is what profiling itself took.
type Cost struct {
	User      time.Duration // CPU time of the profiler's own process, in the kernel too
	BPF       time.Duration // of its programs that take samples
	Interrupt time.Duration // of the interrupts they are taken in: an estimate
}

// Add adds another cost.
func (c *Cost) Add(o Cost) {
	c.User += o.User
	c.BPF += o.BPF
	c.Interrupt += o.Interrupt
}

// Total is all of it.
func (c Cost) Total() time.Duration { return c.User + c.BPF + c.Interrupt }

// negative is what Add takes c away with.
func (c Cost) negative() Cost { return Cost{-c.User, -c.BPF, -c.Interrupt} }

// Thread is one thread of the target, or (shipped) one pattern of thread names.
type Thread struct {
	PID, TID int
	Process  string // the process's name
	Name     string
	Exact    Exact
}

// Pattern folds numbered thread names together: http-exec-12 is http-exec-#.
func (t Thread) Pattern() string { return NamePattern(t.Name) }

// NamePattern replaces each run of digits by #.
func NamePattern(name string) string {
	var b strings.Builder
	digits := false
	for _, r := range name {
		if r >= '0' && r <= '9' {
			if !digits {
				b.WriteByte('#')
			}
			digits = true
			continue
		}
		digits = false
		b.WriteRune(r)
	}
	return b.String()
}

// Context ties a row to what the program was doing. Never a label.
type Context struct {
	Trace, Span, Endpoint, Interval string
}

// Instances says that not all that were eligible were recorded, but so many of
// them, chosen at random. The zero value says that all were.
type Instances struct{ Recorded, Eligible int }

// Absorb keeps what leaves more open: of the most that were eligible, the fewest
// that were recorded.
func (i *Instances) Absorb(o Instances) {
	if o.Eligible > i.Eligible || o.Eligible == i.Eligible && o.Recorded < i.Recorded {
		*i = o
	}
}

// Rate is how often a window was sampled, and who decided that by what. What is
// zero is not known, or was not the same of all that was added up.
type Rate struct {
	Hertz  float64
	Policy string // that chose it from a range; "": none, one rate was asked for
	Reason string // of the policy, in a word
	Why    string // the same in words, with what was measured
	By     string // who decided; see the constants
}

// Who decides on rates.
const (
	ByServer = "server" // for all instances of a service
	ByAgent  = "agent"  // on its own, as it had not heard of its server: for each instance
	ByBudget = "budget" // of the agent, which allows less than was decided
)

// Absorb keeps what both have in common.
func (r *Rate) Absorb(o Rate) {
	common := func(mine *string, other string) {
		if *mine != other {
			*mine = ""
		}
	}
	if r.Hertz != o.Hertz {
		r.Hertz = 0
	}
	common(&r.Policy, o.Policy)
	common(&r.Reason, o.Reason)
	common(&r.Why, o.Why)
	common(&r.By, o.By)
}

// Head is all of a window but its rows and their dictionaries.
type Head struct {
	Task        string
	Target      Labels
	Start       time.Time
	Duration    time.Duration
	ClockOffset time.Duration // of this clock against the server's
	ClockError  time.Duration // by how much that may be wrong; ClockUnknown where nobody knows
	Instances   Instances     // that the task recorded everywhere, when this was cut
	Rate        Rate          // at which it was sampled
	Slot        time.Duration // length of the slots that rows are told apart by; 0: they are not
	Types       []ValueType
	Design      Design
	Exact       Exact // of the whole target in this interval
	Idle        time.Duration
	Watched     time.Duration // CPU time that was watched: CPUs x duration; 0 unless all were
	Cost        Cost          // of profiling the target in this interval
	Losses      []Loss
	Comments    []string
}

// SlotStart is when a slot begins. Slots lie at whole multiples of their length by the
// clock, and the first is the one whose edge is nearest to the window's start: windows
// are cut some moments beside the edge that they are meant to be cut at.
func (h *Head) SlotStart(slot uint32) time.Time {
	return h.Start.Round(h.Slot).Add(time.Duration(slot-1) * h.Slot)
}

// slotOf is which of h's slots one of o's is, which begins no earlier.
func (h *Head) slotOf(o *Head, slot uint32) uint32 {
	if h.Slot == 0 || slot == 0 || h.Start.IsZero() != o.Start.IsZero() {
		return 0
	}
	return uint32(o.SlotStart(slot).Sub(h.SlotStart(1))/h.Slot) + 1
}

// farewell is what the last window of a recording says. It is a comment, so that
// whatever carries, keeps or adds up windows passes it on, of any version.
const farewell = "the recording ended with this window, as it was told to"

// SayFarewell has a window say that none follows it because its recording was told
// to end. Who is killed says nothing.
func (h *Head) SayFarewell() {
	if !h.Farewell() {
		h.Comments = append(h.Comments, farewell)
	}
}

// Farewell tells whether SayFarewell was called, of what was added up for any of it.
func (h *Head) Farewell() bool { return slices.Contains(h.Comments, farewell) }

// IsFarewell tells whether a comment is that of SayFarewell, which tells a reader nothing.
func IsFarewell(comment string) bool { return comment == farewell }

// Identifiers into a window's dictionaries. Zero of ThreadID and ContextID is "none".
type (
	LocationID uint32
	StackID    uint32
	ThreadID   uint32
	ContextID  uint32
)

// Stack is a list of locations, leaf first, and how the walk ended.
type Stack struct {
	Locations []LocationID
	End       End
}

// Row is what was sampled on one stack.
type Row struct {
	Stack   StackID
	Thread  ThreadID
	Context ContextID
	Slot    uint32  // which of the window's slots it was sampled in, plus one; 0: that is not told
	N       int64   // samples
	Values  []int64 // per value type: the sum of the samples' weights
	Squares float64 // sum of squared weights of the first value type
}

// Sample is one sample of a window recorded with its times kept.
type Sample struct {
	Time   time.Duration // since the window's start
	CPU    int
	Thread ThreadID
	Stack  StackID
	Weight int64
	Delta  int64 // of the second event, where one was asked for
}

// Run is one life of an agent: what it began and its successor went on with are
// two windows, and not one that came twice.
type Run [16]byte

// Window is what one sampler, for one task, saw of one target in one interval.
type Window struct {
	Head
	Locations []Location
	Names     [][]Frame // of each location: inlined calls innermost first; empty if not named yet
	Stacks    []Stack
	Threads   []Thread  // ThreadID i is Threads[i-1]
	Contexts  []Context // ContextID i is Contexts[i-1]
	Rows      []Row
	Samples   []Sample // only where each sample's time was kept
}

// Thread gives a row's thread, the zero Thread where it has none.
func (w *Window) Thread(id ThreadID) Thread {
	if id == 0 || int(id) > len(w.Threads) {
		return Thread{}
	}
	return w.Threads[id-1]
}

// Frames gives the frames of a location, never none.
func (w *Window) Frames(id LocationID) []Frame { return framesOf(&w.Locations[id], w.Names[id]) }

func framesOf(l *Location, names []Frame) []Frame {
	if len(names) > 0 {
		return names
	}
	if l.Name != "" {
		return []Frame{{Function: l.Name, File: l.File, Line: l.Line, Kind: l.Kind}}
	}
	return []Frame{Unnamed(l.Kind, l.BuildID, l.Offset)}
}

// N sums the samples of all rows.
func (w *Window) N() (n int64) {
	for _, r := range w.Rows {
		n += r.N
	}
	return n
}

// Total sums value i of all rows.
func (w *Window) Total(i int) (total int64) {
	for _, r := range w.Rows {
		total += r.Values[i]
	}
	return total
}

// TypeIndex finds a value type by kind; -1 if the window has none such.
func (w *Window) TypeIndex(kind string) int {
	return slices.IndexFunc(w.Types, func(t ValueType) bool { return t.Kind == kind })
}

// How much a head tells apart: each loss and comment that is added is looked for
// among those that are there, and windows of thousands that nobody trusts are
// added up.
const (
	MaxLosses   = 256
	MaxComments = 64
	// maxReasons is how many losses without details are kept room for.
	maxReasons = 16
)

// What is told of losses and comments that there is no room for.
const (
	otherDetails = "other details"
	moreComments = "there were more comments"
)

// AddLoss adds to the count of one reason. Where many are told apart already it
// counts among the others of its reason, and of too many reasons among all others.
func (h *Head) AddLoss(l Loss) {
	if l.N == 0 && l.Value == 0 || h.added(l) {
		return
	}
	if len(h.Losses) >= MaxLosses-maxReasons {
		if l.Detail = otherDetails; h.added(l) {
			return
		}
	}
	if len(h.Losses) >= MaxLosses-1 {
		if l.Reason = LossOther; h.added(l) {
			return
		}
	}
	h.Losses = append(h.Losses, l)
}

// added adds to a count that is there.
func (h *Head) added(l Loss) bool {
	for i := range h.Losses {
		if h.Losses[i].Reason == l.Reason && h.Losses[i].Detail == l.Detail {
			h.Losses[i].N += l.N
			h.Losses[i].Value += l.Value
			return true
		}
	}
	return false
}

// AddComment adds what is not said already, as long as there is room.
func (h *Head) AddComment(c string) {
	switch n := len(h.Comments); {
	case n >= MaxComments || slices.Contains(h.Comments, c):
		return
	case n == MaxComments-1:
		c = moreComments
	}
	h.Comments = append(h.Comments, c)
}

// LossOf sums what was lost for one reason, over its details.
func (h *Head) LossOf(reason LossReason) (sum Loss) {
	sum.Reason = reason
	for _, l := range h.Losses {
		if l.Reason == reason {
			sum.N += l.N
			sum.Value += l.Value
		}
	}
	return sum
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
