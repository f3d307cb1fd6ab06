package codec

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// A window as it is kept. Its key has its series, start, task and run.
//
//	version   6. Version 5 had groups of the first type only. Version 4 had no peers, no
//	          exemplars, no minutes, variances of the first type only, types described
//	          after the rows, and traces in contexts. Version 3 did not describe types,
//	          its only exact total was CPU time, and a farewell was a comment.
//	types     count, then kind, unit, period, scale of each
//	rows      count, of them single, which columns there are; temporality, variance and
//	          base of each type, unless all are usual; then columns (blocks.go):
//	          leaf less that of the row before | n | values of each type, less what
//	          as many samples have on average | those of the following that there are:
//	          variance of the first type | of each later type | thread | context | slot |
//	          peer, a leaf plus one | groups of each type; of how many windows, but of one
//	          as it was cut, and of none (rollup.go); how many instances were recorded of how many;
//	          how often was sampled, and why; how long slots are; minutes of a level; primary kind
//	head      duration, design, exact, idle, watched, clock, losses, comments, cost
//	threads, contexts, exemplars
//	more      what later versions append: it is left aside
//
// Single rows come first, by their leaves: those of one sample each, which are
// most of a window as it is cut. They have no n; then the others, by their leaves
// too. Only rows of several samples have an excess.
//
// A merge reads the first half, and of the head what it adds up.
const (
	Version       = 6
	OldestVersion = 3
)

// Leaves are those of a window's stacks: of each row, of each row's peer, plus one, and of
// each exemplar. There are no peers if no row has one.
type Leaves struct{ Rows, Peers, Exemplars []uint32 }

// EncodeWindow writes a window with the given leaves in place of its stacks.
func EncodeWindow(w *store.Window, l Leaves) []byte {
	out := Writer{Version}
	out.Number(uint64(len(w.Head.Types)))
	for i, t := range w.Head.Types {
		out.Word(t.Kind)
		out.Word(t.Unit)
		out.Signed(t.Period)
		out.Signed(w.Scales[i])
	}
	out.rows(w, l)
	out.head(&w.Head)
	out.Number(uint64(len(w.Threads)))
	for _, t := range w.Threads {
		out.Signed(int64(t.PID))
		out.Signed(int64(t.TID))
		out.Text(t.Process)
		out.Text(t.Name)
		out.exact(t.Exact)
	}
	out.Number(uint64(len(w.Contexts)))
	for _, c := range w.Contexts {
		out.Text(c.Reason)
		out.Text(c.Endpoint)
		out.Text(c.Interval)
		out.Text(c.Labels)
	}
	out.Number(uint64(len(w.Exemplars)))
	for i, e := range w.Exemplars {
		out.Text(e.Trace)
		out.Text(e.Span)
		out.Number(uint64(l.Exemplars[i]))
		out.Number(uint64(e.Thread))
		out.Number(uint64(e.Context))
		out.Signed(int64(e.Time))
		out.Signed(e.Value)
	}
	return out
}

func (w *Writer) head(h *profile.Head) {
	w.Signed(int64(h.Duration))
	w.Word(string(h.Design))
	w.exact(h.Exact)
	w.Signed(int64(h.Idle))
	w.Signed(int64(h.Watched))
	w.Signed(int64(h.ClockOffset))
	w.Signed(int64(h.ClockError))
	w.Number(uint64(len(h.Losses)))
	for _, l := range h.Losses {
		w.Text(string(l.Reason))
		w.Text(l.Detail)
		w.Signed(l.N)
		w.Signed(l.Value)
	}
	w.Number(uint64(len(h.Comments)))
	for _, c := range h.Comments {
		w.Text(c)
	}
	w.Signed(int64(h.Cost.User))
	w.Signed(int64(h.Cost.BPF))
	w.Signed(int64(h.Cost.Interrupt))
}

// DecodeWindow reads a window; its rows' stacks are leaves. False if the bytes
// are not what was written.
func DecodeWindow(data []byte) (w store.Window, ok bool) {
	r := windowReader{Reader: Reader{Data: data}}
	r.types(&w)
	r.rows(&w)
	r.head(&w.Head)
	w.Threads = r.threads(nil)
	traces := []trace(nil)
	w.Contexts, traces = r.contexts(nil)
	w.Exemplars = r.exemplars(nil)
	ok = !r.Bad && Within(w.Rows.Thread, len(w.Threads)) && Within(w.Rows.Context, len(w.Contexts))
	for _, e := range w.Exemplars {
		ok = ok && int64(e.Thread) <= int64(len(w.Threads)) && int64(e.Context) <= int64(len(w.Contexts))
	}
	if ok && len(traces) > 0 {
		w.Exemplars = exemplarsOf(&w.Rows, traces)
	}
	return w, ok
}

// threads reads threads into a slice that is used again.
func (r *windowReader) threads(into []profile.Thread) []profile.Thread {
	for n := r.length(); n > 0 && !r.Bad; n-- {
		t := profile.Thread{PID: int(r.Signed()), TID: int(r.Signed()), Process: r.Text(), Name: r.Text(), Exact: r.exact()}
		t.Pruned = profile.NamedPruned(t.Name)
		into = append(into, t)
	}
	return into
}

// trace identifies what a context of an earlier version was traced as.
type trace struct{ trace, span string }

// contexts reads contexts and, of earlier versions, the traces that were part of them.
func (r *windowReader) contexts(into []profile.Context) (_ []profile.Context, traces []trace) {
	for n := r.length(); n > 0 && !r.Bad; n-- {
		if r.version >= 5 {
			into = append(into, profile.Context{Reason: r.Text(), Endpoint: r.Text(), Interval: r.Text(), Labels: r.Text()})
			continue
		}
		traces = append(traces, trace{r.Text(), r.Text()})
		into = append(into, profile.Context{Endpoint: r.Text(), Interval: r.Text()})
	}
	return into, traces
}

// exemplars reads exemplars, whose stacks are leaves.
func (r *windowReader) exemplars(into []profile.Exemplar) []profile.Exemplar {
	if r.version < 5 {
		return into
	}
	for n := r.length(); n > 0 && !r.Bad; n-- {
		into = append(into, profile.Exemplar{Trace: r.Text(), Span: r.Text(), Stack: profile.StackID(r.Small(32)), Thread: profile.ThreadID(r.Small(32)),
			Context: profile.ContextID(r.Small(32)), Time: r.Duration(), Value: r.Signed()})
	}
	return into
}

// exemplarsOf makes exemplars of rows whose contexts were traced.
func exemplarsOf(rows *profile.Rows, traces []trace) (all []profile.Exemplar) {
	for _, row := range rows.All() {
		if row.Context == 0 || traces[row.Context-1] == (trace{}) {
			continue
		}
		t := traces[row.Context-1]
		all = append(all, profile.Exemplar{Trace: t.trace, Span: t.span, Stack: row.Stack, Thread: row.Thread, Context: row.Context, Value: row.Sum(0).Value})
	}
	return profile.ChooseExemplars(all)
}

// Within reports whether each identifier is zero or refers to an existing entry.
func Within[T ~uint32](column []T, entries int) bool {
	return len(column) == 0 || int64(slices.Max(column)) <= int64(entries)
}

func (r *windowReader) types(w *store.Window) {
	readVersion(r)
	for n := r.length(); n > 0 && !r.Bad; n-- {
		w.Head.Types = append(w.Head.Types, readType(r))
		w.Scales = append(w.Scales, r.Signed())
	}
}

// windowReader reads a window.
type windowReader struct {
	Reader
	version uint64 // see readVersion
}

// readVersion reads the version that each window begins with.
func readVersion(r *windowReader) {
	if r.version = r.Number(); r.version < OldestVersion || r.version > Version {
		r.Bad, r.Data = true, nil
	}
}

// readType reads a type, with the usual base of its kind.
func readType(r *windowReader) profile.ValueType {
	t := profile.ValueType{Kind: r.Word(), Unit: r.Word(), Period: r.Signed()}
	t.DecodeBase("")
	return t
}

func (r *windowReader) cost() profile.Cost {
	return profile.Cost{User: r.Duration(), BPF: r.Duration(), Interrupt: r.Duration()}
}

func (r *windowReader) head(h *profile.Head) {
	h.Duration = r.Duration()
	h.Design = profile.Design(r.Word())
	h.Exact = r.exact()
	h.Idle, h.Watched, h.ClockOffset, h.ClockError = r.Duration(), r.Duration(), r.Duration(), r.Duration()
	for n := r.length(); n > 0 && !r.Bad; n-- {
		h.Losses = append(h.Losses, profile.Loss{Reason: profile.LossReason(r.Text()), Detail: r.Text(), N: r.Signed(), Value: r.Signed()})
	}
	for n := r.length(); n > 0 && !r.Bad; n-- {
		h.Comments = append(h.Comments, r.Text())
	}
	h.Cost = r.cost()
	if r.version == OldestVersion {
		h.ReadComments()
	}
}
