package profile

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Design is how samples were chosen. Estimators depend on it.
type Design string

const (
	DesignUnknown    Design = ""
	DesignCensus     Design = "census"     // every event was recorded
	DesignPeriodic   Design = "periodic"   // every n-th unit, at a fixed phase
	DesignRandomised Design = "randomised" // at a random phase, with random intervals
	DesignThinned    Design = "thinned"    // a random part of a denser stream
	DesignSizeBiased Design = "size-biased"
)

// ClockUnknown is the error of a clock that was never compared with a server's. It is the
// largest duration, so that the maximum of several errors keeps it.
const ClockUnknown time.Duration = math.MaxInt64

// Origin is who made a window.
type Origin uint8

const (
	OriginAgent  Origin = iota // an agent of ours, which cuts windows by the clock
	OriginPushed               // another profiler or program, which pushed its profile
)

// LossReason is why samples are missing or incomplete.
type LossReason string

const (
	LossDropped      LossReason = "lost"            // the sampler had no room for it
	LossTruncated    LossReason = "truncated"       // counted, but frames are missing at the root
	LossUnsymbolized LossReason = "unsymbolized"    // counted, but its leaf has no name
	LossPruned       LossReason = "pruned"          // callers cut off by thread pruning
	LossThreshold    LossReason = "below threshold" // shorter than the sampler records
	LossStarting     LossReason = "starting"        // truncated within 50 ms of exec or dlopen
	LossOther        LossReason = "other reasons"   // more than a head lists separately

	// Threads and processes that were not sampled. How many samples they would have had is unknown.
	LossExact   LossReason = "exact times missing" // a thread exited, and there was no room for its exact time
	LossTargets LossReason = "not sampled"         // there was no room for a process among the targets

	// CPU time that was not sampled. N is the number of samples that it would have had,
	// Value the time. It is part of the exact time, and not of any row.
	LossUnsampled LossReason = "CPU time not sampled"

	// Samples that a roll-up counts under no context, since a service had too many contexts.
	LossContexts LossReason = "contexts not told apart"

	// Whole windows that were lost. A later window of the same machine counts them. What they
	// contained is unknown.
	LossSpoolLimit  LossReason = "dropped by the spool's limit"
	LossSpoolDamage LossReason = "damaged in the spool"
	LossRefused     LossReason = "refused by the server"
	LossUnkept      LossReason = "kept nowhere" // the disk was full and the server unreachable, or the agent was killed

	// Windows, or stretches of a series, that the server could not read when it rolled up
	// the others. The rolled-up window counts them.
	LossStoreDamage LossReason = "damaged in the store"
)

// LossReasons lists all reasons. What words or counts losses is tested against it.
func LossReasons() []LossReason {
	return []LossReason{LossDropped, LossTruncated, LossUnsymbolized, LossPruned, LossThreshold, LossStarting, LossOther, LossExact, LossTargets,
		LossUnsampled, LossContexts, LossSpoolLimit, LossSpoolDamage, LossRefused, LossUnkept, LossStoreDamage}
}

// OfWindows reports whether the loss counts windows.
func (r LossReason) OfWindows() bool {
	switch r {
	case LossSpoolLimit, LossSpoolDamage, LossRefused, LossUnkept, LossStoreDamage:
		return true
	}
	return false
}

// OfSamples reports whether the loss counts samples.
func (r LossReason) OfSamples() bool {
	switch r {
	case LossDropped, LossTruncated, LossUnsymbolized, LossPruned, LossThreshold, LossStarting, LossContexts, LossOther:
		return true
	}
	return false
}

// Unit returns what the loss counts, in words. For a reason of a later version that is
// unknown: it is shown by its name and added to nothing.
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

// Loss counts the samples, threads, processes or windows that are missing or incomplete for one reason.
type Loss struct {
	Reason LossReason
	Detail string // in words; may be empty
	N      int64
	Value  int64 // in units of the first value type
}

// Cost is the CPU time that profiling took.
type Cost struct {
	User      time.Duration // of the profiler's own process, system time included
	BPF       time.Duration // of its BPF programs
	Interrupt time.Duration // of the sampling interrupts: an estimate
}

// Add adds another cost.
func (c *Cost) Add(o Cost) {
	c.User += o.User
	c.BPF += o.BPF
	c.Interrupt += o.Interrupt
}

// Total returns the sum.
func (c Cost) Total() time.Duration { return c.User + c.BPF + c.Interrupt }

// Thread is one thread of the target or, once shipped, one pattern of thread names.
type Thread struct {
	PID, TID int
	Process  string // the process's name
	Name     string
	Exact    Exact
	Pruned   bool // it replaces threads of its process that were pruned
}

// PrunedThreads is the name of threads that are Pruned.
const PrunedThreads = "[pruned threads]"

// NamedPruned reports whether the name of a thread says that it is Pruned. Readers of formats
// without that field use it; no real thread has such a name, which has more than 15 bytes.
func NamedPruned(thread string) bool { return thread == PrunedThreads }

// Pattern returns the name with numbers replaced: http-exec-12 is http-exec-#.
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

// Context is what a thread was doing. It is part of a row's key. There are few of them in a
// window: what is unbounded, such as the identifier of a trace, is an Exemplar.
type Context struct {
	Reason   string // why the thread waited, such as "run queue"
	Endpoint string // of a request that it served
	Interval string // a named part of its work
	Labels   string // that the program set, as Labels.String writes them
}

// Instances counts how many of the eligible instances were recorded, chosen at random. The
// zero value means all of them.
type Instances struct{ Recorded, Eligible int }

// Absorb keeps the least certain of the two: the most eligible instances and, among equals,
// the fewest recorded.
func (i *Instances) Absorb(o Instances) {
	if o.Eligible > i.Eligible || o.Eligible == i.Eligible && o.Recorded < i.Recorded {
		*i = o
	}
}

// Rate is how often a window was sampled, and who decided it. A zero field is unknown, or
// differs between merged windows.
type Rate struct {
	Hertz  float64
	Policy string // that chose it from a range; "": the profile names one rate
	Reason string // the policy's reason, in a word
	Why    string // the reason in a sentence, with the measurements
	By     string // who decided; see the constants
}

// Deciders of rates.
const (
	ByServer = "server" // for all instances of the service
	ByAgent  = "agent"  // for each instance, while the server is unreachable
	ByBudget = "budget" // the agent's budget, which allows less than was decided
)

// Absorb keeps what both rates have in common.
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

// Head is a window without its rows and dictionaries.
type Head struct {
	Task        string
	Target      Labels
	Start       time.Time
	Duration    time.Duration
	ClockOffset time.Duration // of the machine's clock against the server's
	ClockError  time.Duration // bound on the error of ClockOffset, or ClockUnknown
	Instances   Instances     // that the task recorded in the whole fleet
	Rate        Rate          // at which it was sampled
	Slot        time.Duration // length of the slots in the rows; 0: rows have none
	Types       []ValueType
	Design      Design
	Origin      Origin // of merged windows: pushed if one of them was
	Farewell    bool   // the recording was told to end, and no window follows this one
	Exact       Exact  // of the whole target in this interval
	Idle        time.Duration
	Watched     time.Duration // CPUs x duration if the whole machine was watched, else 0
	Cost        Cost          // of profiling the target in this interval
	Losses      []Loss
	Comments    []string
}

// SlotStart returns when a slot begins. Slots begin at multiples of their length by the
// clock. The first is the one whose start is nearest to the window's: windows are cut some
// milliseconds off the intended time.
func (h *Head) SlotStart(slot uint32) time.Time {
	return h.Start.Round(h.Slot).Add(time.Duration(slot-1) * h.Slot)
}

// SlotOf returns which of h's slots a slot of o is. Window o begins no earlier than h.
func (h *Head) SlotOf(o *Head, slot uint32) uint32 {
	if h.Slot == 0 || slot == 0 || h.Start.IsZero() != o.Start.IsZero() {
		return 0
	}
	return uint32(o.SlotStart(slot).Sub(h.SlotStart(1))/h.Slot) + 1
}

// Identifiers into a window's dictionaries. Zero of ThreadID, ContextID and PeerID is "none".
type (
	LocationID uint32
	StackID    uint32
	ThreadID   uint32
	ContextID  uint32
	// PeerID identifies the stack of another thread that a row is about as well: of the one
	// that woke it, or that held the lock. PeerID i is Stacks[i-1].
	PeerID uint32
)

// Stack is a list of locations, leaf first, and how the walk ended.
type Stack struct {
	Locations []LocationID
	End       End
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
	Rows      Rows
	Exemplars []Exemplar // of what was traced, at most MaxExemplars
	Samples   []Sample   // only where each sample's time was kept
}

// Thread gives a row's thread, the zero Thread where it has none.
func (w *Window) Thread(id ThreadID) Thread {
	if id == 0 || int(id) > len(w.Threads) {
		return Thread{}
	}
	return w.Threads[id-1]
}

// Context returns a row's context, the zero Context if it has none.
func (w *Window) Context(id ContextID) Context {
	if id == 0 || int(id) > len(w.Contexts) {
		return Context{}
	}
	return w.Contexts[id-1]
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

// N returns the number of samples.
func (w *Window) N() int64 { return w.Rows.Total(0).N }

// Total returns the sum of value type i.
func (w *Window) Total(i int) int64 { return w.Rows.Total(i).Value }

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
