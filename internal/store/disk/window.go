package disk

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// A window as it is kept. Its key has its series, start, task and run.
//
//	version   5. Version 4 had no peers, no exemplars, no minutes, variances of the first
//	          type only, types described after the rows, and traces in contexts. Version 3
//	          did not describe types, its only exact total was CPU time, and a farewell
//	          was a comment.
//	types     count, then kind, unit, period, scale of each
//	rows      count, of them single, which columns there are; temporality, variance and
//	          base of each type, unless all are usual; then columns (blocks.go):
//	          leaf less that of the row before | n | values of each type, less what
//	          as many samples have on average | those of the following that there are:
//	          variance of the first type | of each later type | thread | context | slot |
//	          peer, a leaf plus one | groups; of how many windows, but of one as it was
//	          cut, and of none (rollup.go); how many instances were recorded of how many;
//	          how often was sampled, and why; how long slots are; minutes of a level
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
	version       = 5
	oldestVersion = 3
)

// leaves are those of a window's stacks: of each row, of each row's peer, plus one, and of
// each exemplar. There are no peers if no row has one.
type leaves struct{ rows, peers, exemplars []uint32 }

// encodeWindow writes a window with the given leaves in place of its stacks.
func encodeWindow(w *store.Window, l leaves) []byte {
	out := writer{version}
	out.number(uint64(len(w.Head.Types)))
	for i, t := range w.Head.Types {
		out.word(t.Kind)
		out.word(t.Unit)
		out.signed(t.Period)
		out.signed(w.Scales[i])
	}
	out.rows(w, l)
	out.head(&w.Head)
	out.number(uint64(len(w.Threads)))
	for _, t := range w.Threads {
		out.signed(int64(t.PID))
		out.signed(int64(t.TID))
		out.text(t.Process)
		out.text(t.Name)
		out.exact(t.Exact)
	}
	out.number(uint64(len(w.Contexts)))
	for _, c := range w.Contexts {
		out.text(c.Reason)
		out.text(c.Endpoint)
		out.text(c.Interval)
		out.text(c.Labels)
	}
	out.number(uint64(len(w.Exemplars)))
	for i, e := range w.Exemplars {
		out.text(e.Trace)
		out.text(e.Span)
		out.number(uint64(l.exemplars[i]))
		out.number(uint64(e.Thread))
		out.number(uint64(e.Context))
		out.signed(int64(e.Time))
		out.signed(e.Value)
	}
	return out
}

func (w *writer) head(h *profile.Head) {
	w.signed(int64(h.Duration))
	w.word(string(h.Design))
	w.exact(h.Exact)
	w.signed(int64(h.Idle))
	w.signed(int64(h.Watched))
	w.signed(int64(h.ClockOffset))
	w.signed(int64(h.ClockError))
	w.number(uint64(len(h.Losses)))
	for _, l := range h.Losses {
		w.text(string(l.Reason))
		w.text(l.Detail)
		w.signed(l.N)
		w.signed(l.Value)
	}
	w.number(uint64(len(h.Comments)))
	for _, c := range h.Comments {
		w.text(c)
	}
	w.signed(int64(h.Cost.User))
	w.signed(int64(h.Cost.BPF))
	w.signed(int64(h.Cost.Interrupt))
}

// decodeWindow reads a window; its rows' stacks are leaves. False if the bytes
// are not what was written.
func decodeWindow(data []byte) (w store.Window, ok bool) {
	r := reader{data: data}
	r.types(&w)
	r.rows(&w)
	r.head(&w.Head)
	w.Threads = r.threads(nil)
	traces := []trace(nil)
	w.Contexts, traces = r.contexts(nil)
	w.Exemplars = r.exemplars(nil)
	ok = !r.bad && within(w.Rows.Thread, len(w.Threads)) && within(w.Rows.Context, len(w.Contexts))
	for _, e := range w.Exemplars {
		ok = ok && int64(e.Thread) <= int64(len(w.Threads)) && int64(e.Context) <= int64(len(w.Contexts))
	}
	if ok && len(traces) > 0 {
		w.Exemplars = exemplarsOf(&w.Rows, traces)
	}
	return w, ok
}

// threads reads threads into a slice that is used again.
func (r *reader) threads(into []profile.Thread) []profile.Thread {
	for n := r.length(); n > 0 && !r.bad; n-- {
		t := profile.Thread{PID: int(r.signed()), TID: int(r.signed()), Process: r.text(), Name: r.text(), Exact: r.exact()}
		t.Pruned = profile.NamedPruned(t.Name)
		into = append(into, t)
	}
	return into
}

// trace identifies what a context of an earlier version was traced as.
type trace struct{ trace, span string }

// contexts reads contexts and, of earlier versions, the traces that were part of them.
func (r *reader) contexts(into []profile.Context) (_ []profile.Context, traces []trace) {
	for n := r.length(); n > 0 && !r.bad; n-- {
		if r.version >= 5 {
			into = append(into, profile.Context{Reason: r.text(), Endpoint: r.text(), Interval: r.text(), Labels: r.text()})
			continue
		}
		traces = append(traces, trace{r.text(), r.text()})
		into = append(into, profile.Context{Endpoint: r.text(), Interval: r.text()})
	}
	return into, traces
}

// exemplars reads exemplars, whose stacks are leaves.
func (r *reader) exemplars(into []profile.Exemplar) []profile.Exemplar {
	if r.version < 5 {
		return into
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		into = append(into, profile.Exemplar{Trace: r.text(), Span: r.text(), Stack: profile.StackID(r.small(32)), Thread: profile.ThreadID(r.small(32)),
			Context: profile.ContextID(r.small(32)), Time: r.duration(), Value: r.signed()})
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

// within reports whether each identifier is zero or refers to an existing entry.
func within[T ~uint32](column []T, entries int) bool {
	return len(column) == 0 || int64(slices.Max(column)) <= int64(entries)
}

func (r *reader) types(w *store.Window) {
	readVersion(r)
	for n := r.length(); n > 0 && !r.bad; n-- {
		w.Head.Types = append(w.Head.Types, readType(r))
		w.Scales = append(w.Scales, r.signed())
	}
}

// readVersion reads the version that each window begins with.
func readVersion(r *reader) {
	if r.version = r.number(); r.version < oldestVersion || r.version > version {
		r.bad, r.data = true, nil
	}
}

// readType reads a type, with the usual base of its kind.
func readType(r *reader) profile.ValueType {
	t := profile.ValueType{Kind: r.word(), Unit: r.word(), Period: r.signed()}
	t.DecodeBase("")
	return t
}

func (r *reader) cost() profile.Cost {
	return profile.Cost{User: r.duration(), BPF: r.duration(), Interrupt: r.duration()}
}

func (r *reader) head(h *profile.Head) {
	h.Duration = r.duration()
	h.Design = profile.Design(r.word())
	h.Exact = r.exact()
	h.Idle, h.Watched, h.ClockOffset, h.ClockError = r.duration(), r.duration(), r.duration(), r.duration()
	for n := r.length(); n > 0 && !r.bad; n-- {
		h.Losses = append(h.Losses, profile.Loss{Reason: profile.LossReason(r.text()), Detail: r.text(), N: r.signed(), Value: r.signed()})
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		h.Comments = append(h.Comments, r.text())
	}
	h.Cost = r.cost()
	if r.version == oldestVersion {
		h.ReadComments()
	}
}
