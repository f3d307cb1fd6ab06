package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// Result is how a sampler did against the oracle.
type Result struct {
	// All samples, by how their walks ended.
	Samples  int64
	Complete int64
	Starting int64 // too soon after exec or dlopen to be complete
	NoUser   int64
	Ends     map[profile.End]int64

	// Those that have a record.
	Equal  int // both went to the end, all frames agree
	Cut    int // ours is truncated, and agrees as far as it goes
	Short  int // the oracle could not go on; agrees as far as it goes
	Guess  int // of these: agrees to the very end, where the oracle goes on by guessing at frame pointers
	Differ int

	// The complete stacks among them whose calls could be looked at.
	Calls      int
	CallsWrong int

	RecordsLost uint64 // by the kernel: our rings were full
	Unmatched   int    // records without a sample of ours
	Apart       []time.Duration

	Differences map[string]*Reason
	Truncations map[string]*Reason // what stopped the walks that are not complete
	Shorts      map[string]*Reason // what stopped the oracle
	WrongCalls  map[string]*Reason

	Unwinder unwind.Stats
}

// Reason groups stacks that went wrong in the same way.
type Reason struct {
	Text    string
	Count   int
	Example string // one stack, both views
}

func newResult() *Result {
	return &Result{Ends: map[profile.End]int64{}, Differences: map[string]*Reason{},
		Truncations: map[string]*Reason{}, Shorts: map[string]*Reason{}, WrongCalls: map[string]*Reason{}}
}

// Compared counts the stacks that both sides walked to their end, and those
// that disagree.
func (r *Result) Compared() int { return r.Equal + r.Differ }

// CompleteShare is the share of complete stacks among those that could be.
func (r *Result) CompleteShare() float64 {
	return share(r.Complete, r.Samples-r.Starting-r.NoUser)
}

// EqualShare is the share of equal stacks among those compared.
func (r *Result) EqualShare() float64 { return share(int64(r.Equal), int64(r.Compared())) }

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Top lists reasons, most frequent first.
func Top(reasons map[string]*Reason) []*Reason {
	return slices.SortedFunc(maps.Values(reasons), func(a, b *Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Text, b.Text))
	})
}

func (r *Result) count(w *profile.Window) {
	for _, row := range w.Rows.All() {
		end := w.Stacks[row.Stack].End
		r.Samples += row.N
		r.Ends[end] += row.N
		switch end {
		case profile.EndComplete:
			r.Complete += row.N
		case profile.EndStarting:
			r.Starting += row.N
		case profile.EndNoUser:
			r.NoUser += row.N
		}
	}
}

// goSwitch are Go's functions that leave the stack they were called on: Go's
// own .debug_frame describes them as if they did not, so the oracle's word ends
// there.
var goSwitch = []string{"runtime.systemstack", "runtime.mcall", "runtime.morestack", "runtime.asmcgocall",
	"runtime.cgocallback", "runtime.gogo", "gogo", "time.now", "runtime.sigtramp", "runtime.sigreturn", "runtime.nanotime1", "runtime.walltime"}

// outermost are functions that nothing marks as such: Go's, whose .debug_frame
// does not, and musl's, which have no unwind information at all.
var outermost = []string{"runtime.goexit", "runtime.mstart", "runtime.rt0_go", "_rt0_amd64", "runtime.mstart_stub",
	"libc_start_main_stage2", "start"}

// named tells whether a witness stands in one of the functions.
func (w witness) named(functions []string) bool {
	name, _, _ := strings.Cut(w.name, "+0x")
	return slices.Contains(functions, strings.TrimSuffix(name, ".abi0"))
}

// evidence cuts a testimony where it stops being one: behind a frame without
// unwind information libdwfl guesses.
func (s said) evidence() (frames []witness, complete bool, stop string) {
	for i, f := range s.frames {
		switch {
		case f.named(outermost):
			return s.frames[:i+1], true, ""
		case f.named(goSwitch):
			return s.frames[:i+1], false, "Go leaves the stack in " + function(f.name)
		case f.guessed:
			return s.frames[:i+1], false, "no unwind information"
		}
	}
	return s.frames, s.end == "complete", s.end
}

// judgeCalls asks the code whether each caller of a complete stack calls.
func (r *Result) judgeCalls(p pair, ours claim, theirs said, c *calls) {
	if ours.end != profile.EndComplete {
		return
	}
	switch found := c.check(ours.places); {
	case found.wrong != "":
		r.Calls++
		r.CallsWrong++
		note(r.WrongCalls, found.wrong, p, ours, theirs)
	case found.checked > 0:
		r.Calls++
	}
}

// judge compares one stack.
func (r *Result) judge(p pair, ours claim, theirs said) {
	r.Apart = append(r.Apart, p.apart)
	frames, complete, stop := theirs.evidence()
	if ours.end == profile.EndNoUser || ours.end == profile.EndLost || ours.end == profile.EndStarting {
		return
	}
	done := ours.end == profile.EndComplete
	if !done {
		r.truncated(p, ours, theirs)
	}
	if n := len(ours.places); ours.end == profile.EndNoMapping && n > 0 {
		ours.places = ours.places[:n-1] // it says itself that it does not know where that is
	}
	if i := slices.Index(ours.places, place{}); i >= 0 { // of a language: it has no address to compare
		ours.places, frames = ours.places[:i], frames[:min(i, len(frames))]
		complete, stop = false, "a language's function"
	}
	for i := range min(len(ours.places), len(frames)) {
		if agree(p.record.space, i, ours.places[i], frames[i]) {
			continue
		}
		text := "the first frame"
		if i > 0 {
			text = "the caller of " + frames[i-1].at(p.record.space)
		}
		r.differ(p, ours, theirs, text)
		return
	}
	switch {
	case done && len(ours.places) < len(frames):
		r.differ(p, ours, theirs, "complete too early, at "+frames[len(ours.places)-1].at(p.record.space))
	case complete && len(ours.places) > len(frames):
		r.differ(p, ours, theirs, "goes past the end, "+frames[len(frames)-1].at(p.record.space))
	case !done:
		r.Cut++
	case !complete:
		r.Short++
		if theirs.end == "complete" && len(theirs.frames) == len(ours.places) && agreeAll(p.record.space, ours.places, theirs.frames) {
			r.Guess++
			return
		}
		note(r.Shorts, stop+lastOf(frames, p.record.space), p, ours, theirs)
	default:
		r.Equal++
	}
}

func lastOf(frames []witness, s *space) string {
	if len(frames) == 0 {
		return ""
	}
	return ", at " + path.Base(s.place(frames[len(frames)-1].pc).path)
}

// agree compares one frame. The code that signal handlers return to is entered
// by a return address that is also exact: both readings are right.
func agree(s *space, i int, ours place, theirs witness) bool {
	if theirs.exact && ours == s.place(theirs.pc) {
		return true
	}
	return i > 0 && ours == s.place(theirs.pc-1)
}

func agreeAll(s *space, ours []place, theirs []witness) bool {
	for i := range ours {
		if !agree(s, i, ours[i], theirs[i]) {
			return false
		}
	}
	return true
}

func (r *Result) differ(p pair, ours claim, theirs said, text string) {
	r.Differ++
	note(r.Differences, text, p, ours, theirs)
}

func (r *Result) truncated(p pair, ours claim, theirs said) {
	n := len(ours.places)
	where := "the start"
	if n > 0 {
		where = ours.places[n-1].String()
	}
	if n > 0 && n <= len(theirs.frames) {
		where = theirs.frames[n-1].at(p.record.space)
	}
	note(r.Truncations, ours.end.String()+" at "+where, p, ours, theirs)
}

func note(reasons map[string]*Reason, text string, p pair, ours claim, theirs said) {
	one := reasons[text]
	if one == nil {
		one = &Reason{Text: text, Example: example(p, ours, theirs)}
		reasons[text] = one
	}
	one.Count++
}

// at names a frame by file and function, without the offset that makes each
// sample its own; code without a symbol by its offset in the file.
func (w witness) at(s *space) string {
	p := s.place(w.pc)
	if name := function(w.name); name != "?" {
		return path.Base(p.path) + "`" + name
	}
	return fmt.Sprintf("%s+%#x", path.Base(p.path), p.offset)
}

func function(name string) string {
	name, _, _ = strings.Cut(name, "+0x")
	return name
}

// example writes both views of a stack beside each other.
func example(p pair, ours claim, theirs said) string {
	var b strings.Builder
	fmt.Fprintf(&b, "process %d thread %d CPU %d, times %v apart: ours %s, oracle %s, rsp %#x rbp %#x, %d stack bytes\n",
		p.record.pid, p.record.tid, p.record.cpu, p.apart, ours.end, theirs.end, p.record.registers[7], p.record.registers[6], len(p.record.stack))
	for i := range max(len(ours.places), len(theirs.frames)) {
		left, right := "-", "-"
		if i < len(ours.places) {
			left = ours.places[i].String()
		}
		if i < len(theirs.frames) {
			f := theirs.frames[i]
			at := f.pc
			if !f.exact {
				at--
			}
			right = fmt.Sprintf("%s %s", p.record.space.place(at), f.name)
			if f.guessed {
				right += " (no unwind information)"
			}
		}
		fmt.Fprintf(&b, "  %3d %-60s %s\n", i, left, right)
	}
	return b.String()
}
