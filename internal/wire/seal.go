package wire

import (
	"iter"
	"math"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// scaleOf is how finely values are kept: by periods where all are some of them,
// else by halves of one: weights, which lie between half a period and one and a
// half, are one of three numbers then. A sum errs by what was sampled, and by
// rounding a fiftieth of that.
func scaleOf(period int64, rows int, value func(row int) int64) int64 {
	if period <= 1 {
		return 1
	}
	for i := range rows {
		if value(i)%period != 0 {
			return max(1, period/2)
		}
	}
	return period
}

// Seal makes a window whole by itself, to be kept and sent. Samples at points of
// time are not sealed.
func Seal(w *profile.Window, run profile.Run) *atysv1.Spooled {
	d := newDictionary()
	hashes := make([]profile.Hash, len(w.Stacks))
	locations := make([]place, len(w.Locations))
	for i, l := range w.Locations {
		locations[i] = d.location(l, w.Names[i])
	}
	for i, s := range w.Stacks {
		hashes[i] = d.stack(locations, s)
	}
	m := SealHead(&w.Head, run)
	for i := range m.Types {
		m.Types[i].Scale = scaleOf(w.Types[i].Period, w.Rows.Len(), func(row int) int64 { return w.Rows.At(row).Values[i] })
	}
	m.Threads = sealThreads(w.Threads)
	m.Contexts, m.Exemplars = SealContexts(w.Contexts), SealExemplars(w.Exemplars)
	m.Rows = SealRows(&w.Rows, m.Types)
	return &atysv1.Spooled{Window: m, Series: sealSeries(w.Target), Stacks: Table(hashes), Dictionary: d.bytes()}
}

// SealHead makes a window of a head, without rows; scales are left to set.
func SealHead(h *profile.Head, run profile.Run) *atysv1.Window {
	m := &atysv1.Window{
		Task: utf8(h.Task), Run: run[:], StartUnixNano: h.Start.UnixNano(), DurationNs: int64(h.Duration),
		ClockOffsetNs: int64(h.ClockOffset), ClockErrorNs: int64(h.ClockError),
		Design: string(h.Design), Exact: Exact(h.Exact), IdleNs: int64(h.Idle), WatchedNs: int64(h.Watched), SlotNs: int64(h.Slot), Farewell: h.Farewell, Origin: uint32(h.Origin),
	}
	if h.Instances != (profile.Instances{}) {
		m.Instances = &atysv1.Instances{Recorded: uint32(h.Instances.Recorded), Eligible: uint32(h.Instances.Eligible)}
	}
	if h.Cost != (profile.Cost{}) {
		m.Cost = Cost(h.Cost)
	}
	m.Rate = Rate(h.Rate)
	m.Types = Types(h.Types)
	few := profile.Head{} // what was not added one by one may be more than a receiver takes
	for _, c := range h.OldComments() {
		few.AddComment(Text(c))
	}
	m.Comments = few.Comments
	for _, l := range h.Losses {
		l.Detail = Text(l.Detail)
		few.AddLoss(l)
	}
	for _, l := range few.Losses {
		m.Losses = append(m.Losses, &atysv1.Loss{Reason: string(l.Reason), Detail: l.Detail, N: l.N, Value: l.Value})
	}
	return m
}

// Types converts value types to messages; scales are left to set.
func Types(types []profile.ValueType) (all []*atysv1.ValueType) {
	for _, t := range types {
		all = append(all, &atysv1.ValueType{Kind: utf8(t.Kind), Unit: utf8(t.Unit), Period: t.Period, Temporality: uint32(t.Temporality), Variance: uint32(t.Variance), Base: utf8(t.EncodedBase())})
	}
	return all
}

// Cost is a cost as messages have it.
func Cost(c profile.Cost) *atysv1.Cost {
	return &atysv1.Cost{UserNs: int64(c.User), BpfNs: int64(c.BPF), InterruptNs: int64(c.Interrupt)}
}

// Rate is a rate as messages have it; nil: nothing is known of it.
func Rate(r profile.Rate) *atysv1.Rate {
	if r == (profile.Rate{}) {
		return nil
	}
	return &atysv1.Rate{Hertz: r.Hertz, Policy: FitLabel(r.Policy), Reason: FitLabel(r.Reason), Why: Text(r.Why), By: FitLabel(r.By)}
}

func sealSeries(labels profile.Labels) *atysv1.Series {
	s := &atysv1.Series{Labels: make(map[string]string, len(labels))}
	for k, v := range labels {
		s.Labels[utf8(k)] = utf8(v)
	}
	return s
}

// utf8 is text as messages can hold it: threads and labels may be called anything.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Text is what is said about a window or a task, as much as is taken of it, and as
// messages can hold it: others' programs may have said it.
func Text(s string) string {
	s = utf8(s)
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "")
}

// Exact converts exact totals to a message; nil: there are none.
func Exact(e profile.Exact) *atysv1.Exact {
	if e == (profile.Exact{}) {
		return nil
	}
	return &atysv1.Exact{CpuNs: int64(e.CPU), UserNs: int64(e.User), SystemNs: int64(e.System),
		WallNs: int64(e.Wall), RunQueueNs: int64(e.RunQueue), Bytes: e.Bytes, Source: e.Source, IncludesInterrupt: e.IncludesInterrupt}
}

func sealThreads(threads []profile.Thread) (sealed []*atysv1.Thread) {
	for _, t := range threads {
		sealed = append(sealed, &atysv1.Thread{Process: utf8(t.Process), Name: utf8(t.Name), Pid: int32(t.PID), Tid: int32(t.TID), Exact: Exact(t.Exact), Pruned: t.Pruned})
	}
	return sealed
}

// SealRows writes rows, whose values become multiples of the types' scales. The message shares
// columns with them.
func SealRows(rows *profile.Rows, types []*atysv1.ValueType) *atysv1.Rows {
	r := &atysv1.Rows{}
	r.Stack, r.Thread, r.Context = numbers(rows.Stack), orNone(numbers(rows.Thread)), orNone(numbers(rows.Context))
	r.Slot, r.Peer, r.N = orNone(rows.Slot), orNone(numbers(rows.Peer)), rows.N
	for i, t := range types {
		in := steps{scale: t.Scale}
		for _, row := range rows.All() {
			r.Value = append(r.Value, in.of(row.Values[i]))
		}
	}
	if inSpread(types) {
		r.Spread = spreads(rows, types[0].Scale)
	}
	r.Variance = variances(rows, types)
	return r
}

// inSpread reports whether the variance of the first type is in the column spread.
func inSpread(types []*atysv1.ValueType) bool {
	return len(types) > 0 && types[0].GetVariance() == uint32(profile.FromWeights)
}

// inVariance yields the types whose variances are in the column variance.
func inVariance(types []*atysv1.ValueType) iter.Seq2[int, *atysv1.ValueType] {
	return func(yield func(int, *atysv1.ValueType) bool) {
		for i, t := range types {
			if (i > 0 || !inSpread(types)) && !yield(i, t) {
				return
			}
		}
	}
}

// variances returns the column variance, nil if it is all zero.
func variances(rows *profile.Rows, types []*atysv1.ValueType) (column []float32) {
	for i, t := range inVariance(types) {
		squared := float64(t.GetScale()) * float64(t.GetScale())
		for _, row := range rows.All() {
			variance := row.Squares[i]
			if t.GetVariance() == uint32(profile.FromWeights) {
				variance = row.Sum(i).Spread()
			}
			column = append(column, float32(variance/squared))
		}
	}
	return orNone(column)
}

// SealContexts is the inverse of Contexts.
func SealContexts(contexts []profile.Context) (sealed []*atysv1.Context) {
	for _, c := range contexts {
		sealed = append(sealed, &atysv1.Context{Reason: Text(c.Reason), Endpoint: Text(c.Endpoint), Interval: Text(c.Interval), Labels: Text(c.Labels)})
	}
	return sealed
}

// SealExemplars is the inverse of Exemplars.
func SealExemplars(exemplars []profile.Exemplar) (sealed []*atysv1.Exemplar) {
	for _, e := range exemplars {
		sealed = append(sealed, &atysv1.Exemplar{Trace: FitLabel(e.Trace), Span: FitLabel(e.Span), Stack: uint32(e.Stack),
			Thread: uint32(e.Thread), Context: uint32(e.Context), AfterNs: int64(e.Time), Value: e.Value})
	}
	return sealed
}

// numbers converts a column of identifiers.
func numbers[T ~uint32](column []T) []uint32 {
	if column == nil {
		return nil
	}
	out := make([]uint32, len(column))
	for i, v := range column {
		out[i] = uint32(v)
	}
	return out
}

// steps rounds values to some of a scale. What it takes from one row it gives to
// the next.
type steps struct{ scale, carried int64 }

func (s *steps) of(value int64) int64 {
	value += s.carried
	n := rounded(value, s.scale)
	s.carried = value - n*s.scale
	return n
}

// rounded divides, to the nearest.
func rounded(value, by int64) int64 {
	if value < 0 {
		return -rounded(-value, by)
	}
	n := value / by
	if rest := value % by; rest >= by-by/2 {
		n++
	}
	return n
}

// spreads tells how much the weights of each row's samples differ.
func spreads(rows *profile.Rows, scale int64) []int64 {
	out := make([]int64, rows.Len())
	for i, row := range rows.All() {
		out[i] = spread(row.Sum(0), scale)
	}
	return orNone(out)
}

func spread(sum profile.Sum, scale int64) int64 {
	return int64(math.Round(sum.Spread() / float64(scale) / float64(scale)))
}

// orNone leaves a column out that is all zero.
func orNone[T uint32 | int64 | float32](column []T) []T {
	for _, v := range column {
		if v != 0 {
			return column
		}
	}
	return nil
}
