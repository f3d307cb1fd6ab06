package disk

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// A window as it is kept. Its key has its series, start, task and run.
//
//	version   4. Version 3 did not describe types, its only exact total was CPU time, and
//	          a farewell was a comment.
//	types     count, then kind, unit, period, scale of each
//	rows      count, of them single, which columns there are, then columns (blocks.go):
//	          leaf less that of the row before | n | values of each type, less what
//	          as many samples have on average | those of the following that there are:
//	          excess | thread | context | slot | groups; of how many windows, but of
//	          one as it was cut, and of none (lost.go); how many instances were
//	          recorded of how many; how often was sampled, and why; how long slots are;
//	          temporality and base of each type, unless all are deltas of the usual base
//	head      duration, design, exact, idle, watched, clock, losses, comments, cost
//	threads, contexts
//	more      what later versions append: it is left aside
//
// Single rows come first, by their leaves: those of one sample each, which are
// most of a window as it is cut. They have no n; then the others, by their leaves
// too. Only rows of several samples have an excess.
//
// A merge reads the first half, and of the head what it adds up.
const (
	version       = 4
	oldestVersion = 3
)

// encodeWindow writes a window whose rows' stacks are leaves already.
func encodeWindow(w *store.Window, leaves []uint32) []byte {
	out := writer{version}
	out.number(uint64(len(w.Head.Types)))
	for i, t := range w.Head.Types {
		out.word(t.Kind)
		out.word(t.Unit)
		out.signed(t.Period)
		out.signed(w.Scales[i])
	}
	out.rows(w, leaves)
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
		out.text(c.Trace)
		out.text(c.Span)
		out.text(c.Endpoint)
		out.text(c.Interval)
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
	for n := r.length(); n > 0 && !r.bad; n-- {
		w.Threads = append(w.Threads, profile.Thread{PID: int(r.signed()), TID: int(r.signed()), Process: r.text(), Name: r.text(), Exact: r.exact()})
	}
	for n := r.length(); n > 0 && !r.bad; n-- {
		w.Contexts = append(w.Contexts, profile.Context{Trace: r.text(), Span: r.text(), Endpoint: r.text(), Interval: r.text()})
	}
	return w, !r.bad && within(w.Rows.Thread, len(w.Threads)) && within(w.Rows.Context, len(w.Contexts))
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
