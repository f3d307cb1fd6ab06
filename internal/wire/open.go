package wire

import (
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// CheckRows checks that a window's columns are of one length, and that all they
// point at is there.
func CheckRows(m *atysv1.Window, stacks int) error {
	r, n := m.GetRows(), len(m.GetRows().GetStack())
	optional := func(length int) bool { return length == 0 || length == n }
	if len(r.GetN()) != n || len(r.GetValue()) != n*len(m.GetTypes()) || !optional(len(r.GetThread())) ||
		!optional(len(r.GetContext())) || !optional(len(r.GetSlot())) || !optional(len(r.GetSpread())) || !optional(len(r.GetPeer())) ||
		!checkVariances(m) {
		return malformed("columns of %d rows have other lengths", n)
	}
	if err := checkParts(m); err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		column  []uint32
		entries int
	}{{"stack", r.GetStack(), stacks}, {"peer", r.GetPeer(), stacks + 1}, {"thread", r.GetThread(), len(m.GetThreads()) + 1}, {"context", r.GetContext(), len(m.GetContexts()) + 1}} {
		for _, v := range part.column {
			if int64(v) >= int64(part.entries) {
				return malformed("%s %d of %d", part.name, v, part.entries)
			}
		}
	}
	if err := checkExemplars(m, stacks); err != nil {
		return err
	}
	for _, count := range r.GetN() {
		if count < 0 {
			return malformed("a row of %d samples", count)
		}
	}
	for t, typ := range m.GetTypes() {
		if typ.GetScale() < 1 {
			return malformed("values of %q in steps of %d", typ.GetKind(), typ.GetScale())
		}
		most := math.MaxInt64 / typ.GetScale()
		for _, v := range r.GetValue()[t*n : (t+1)*n] {
			if v > most || v < -most {
				return malformed("a value of %d steps of %d", v, typ.GetScale())
			}
		}
	}
	return nil
}

// checkVariances reports whether the column variance has the right length, and only finite
// numbers.
func checkVariances(m *atysv1.Window) bool {
	columns := len(m.GetTypes())
	if inSpread(m.GetTypes()) {
		columns--
	}
	column := m.GetRows().GetVariance()
	return (len(column) == 0 || len(column) == columns*len(m.GetRows().GetStack())) &&
		!slices.ContainsFunc(column, func(v float32) bool { return !(v >= 0 && v <= math.MaxFloat32) })
}

func checkExemplars(m *atysv1.Window, stacks int) error {
	if n := len(m.GetExemplars()); n > profile.MaxExemplars {
		return malformed("%d exemplars: at most %d are taken", n, profile.MaxExemplars)
	}
	for _, e := range m.GetExemplars() {
		if int64(e.GetStack()) >= int64(stacks) || int(e.GetThread()) > len(m.GetThreads()) || int(e.GetContext()) > len(m.GetContexts()) {
			return malformed("an exemplar of stack %d, thread %d and context %d", e.GetStack(), e.GetThread(), e.GetContext())
		}
	}
	return nil
}

// replicateGroups is in how many groups values are told.
const replicateGroups = 8

// checkParts checks what a window that contains others has to have, and that
// others do not have it.
func checkParts(m *atysv1.Window) error {
	r, n := m.GetRows(), len(m.GetRows().GetStack())
	if len(m.GetContains()) == 0 {
		if len(r.GetGroups()) > 0 {
			return malformed("a window that contains no others has groups")
		}
		return nil
	}
	if types := len(m.GetTypes()); types == 0 || len(m.GetThreads()) > 0 || len(r.GetGroups()) != replicateGroups*types*n {
		return malformed("a window that contains others has %d types, %d threads, %d groups of %d rows", types, len(m.GetThreads()), len(r.GetGroups()), n)
	}
	for _, t := range m.GetTypes() {
		if t.GetTemporality() != uint32(profile.Delta) {
			return malformed("a window that contains others has a type, %q, that is no delta", t.GetKind())
		}
	}
	for i, value := range r.GetValue() {
		for _, v := range r.Groups[i*replicateGroups : (i+1)*replicateGroups] {
			value -= v
		}
		if value != 0 {
			return malformed("the groups of a row differ from its value by %d", value)
		}
	}
	return nil
}

// Head reads all of a window but its target, its rows and what they point at.
func Head(m *atysv1.Window) (h profile.Head, run profile.Run, err error) {
	if len(m.GetRun()) != len(run) {
		return h, run, malformed("a run of %d bytes", len(m.GetRun()))
	}
	copy(run[:], m.GetRun())
	if m.GetDurationNs() < 0 || m.GetStartUnixNano() < 0 || m.GetDurationNs() > math.MaxInt64-m.GetStartUnixNano() {
		return h, run, malformed("a window of %d ns from %d on", m.GetDurationNs(), m.GetStartUnixNano())
	}
	for _, t := range m.GetTypes() {
		if t.GetTemporality() > math.MaxUint8 || t.GetVariance() > math.MaxUint8 {
			return h, run, malformed("temporality %d and variance %d of %q", t.GetTemporality(), t.GetVariance(), t.GetKind())
		}
	}
	if m.GetOrigin() > math.MaxUint8 {
		return h, run, malformed("origin %d", m.GetOrigin())
	}
	if m.GetSlotNs() < 0 {
		return h, run, malformed("slots of %d ns", m.GetSlotNs())
	}
	h = profile.Head{
		Task: m.GetTask(), Start: time.Unix(0, m.GetStartUnixNano()), Duration: time.Duration(m.GetDurationNs()),
		ClockOffset: time.Duration(m.GetClockOffsetNs()), ClockError: time.Duration(m.GetClockErrorNs()),
		Design: profile.Design(m.GetDesign()), Origin: profile.Origin(m.GetOrigin()), Exact: exact(m.GetExact()), Idle: time.Duration(m.GetIdleNs()), Watched: time.Duration(m.GetWatchedNs()),
		Cost: cost(m.GetCost()), Rate: RateOf(m.GetRate()), Slot: time.Duration(m.GetSlotNs()), Farewell: m.GetFarewell(), Comments: m.GetComments(),
		Instances: profile.Instances{Recorded: int(m.GetInstances().GetRecorded()), Eligible: int(m.GetInstances().GetEligible())},
	}
	for _, t := range m.GetTypes() {
		one := profile.ValueType{Kind: t.GetKind(), Unit: t.GetUnit(), Period: t.GetPeriod(), Temporality: profile.Temporality(t.GetTemporality()), Variance: profile.Variance(t.GetVariance())}
		one.DecodeBase(t.GetBase())
		h.Types = append(h.Types, one)
	}
	h.ReadComments()
	h.Losses = losses(m.GetLosses())
	return h, run, nil
}

// losses are looked up among those before: there may be many.
func losses(all []*atysv1.Loss) (losses []profile.Loss) {
	type what struct{ reason, detail string }
	places := map[what]int{}
	for _, l := range all {
		if l.GetN() == 0 && l.GetValue() == 0 {
			continue
		}
		of := what{l.GetReason(), l.GetDetail()}
		i, ok := places[of]
		if !ok {
			i = len(losses)
			places[of] = i
			losses = append(losses, profile.Loss{Reason: profile.LossReason(of.reason), Detail: of.detail})
		}
		losses[i].N += l.GetN()
		losses[i].Value += l.GetValue()
	}
	return losses
}

func cost(m *atysv1.Cost) profile.Cost {
	return profile.Cost{User: time.Duration(m.GetUserNs()), BPF: time.Duration(m.GetBpfNs()), Interrupt: time.Duration(m.GetInterruptNs())}
}

// RateOf is the inverse of Rate. One that cannot be is not known.
func RateOf(m *atysv1.Rate) profile.Rate {
	if CheckRate(m) != nil {
		return profile.Rate{}
	}
	return profile.Rate{Hertz: m.GetHertz(), Policy: m.GetPolicy(), Reason: m.GetReason(), Why: m.GetWhy(), By: m.GetBy()}
}

func exact(m *atysv1.Exact) profile.Exact {
	return profile.Exact{CPU: time.Duration(m.GetCpuNs()), User: time.Duration(m.GetUserNs()), System: time.Duration(m.GetSystemNs()),
		Wall: time.Duration(m.GetWallNs()), RunQueue: time.Duration(m.GetRunQueueNs()), Bytes: m.GetBytes(),
		Source: m.GetSource(), IncludesInterrupt: m.GetIncludesInterrupt()}
}

// Open is the inverse of Seal, up to the rounding of values.
func Open(s *atysv1.Spooled) (*profile.Window, profile.Run, error) {
	m := s.GetWindow()
	h, run, err := Head(m)
	if err != nil {
		return nil, run, err
	}
	hashes, err := Hashes(s.GetStacks())
	if err != nil {
		return nil, run, err
	}
	if err := CheckRows(m, len(hashes)); err != nil {
		return nil, run, err
	}
	l, err := Learn(s.GetDictionary())
	if err != nil {
		return nil, run, err
	}
	h.Target = s.GetSeries().GetLabels()
	w := &profile.Window{Head: h}
	for _, p := range l.Places {
		w.Locations = append(w.Locations, p.Location)
		w.Names = append(w.Names, p.Names)
	}
	if w.Stacks, err = stacks(l, hashes); err != nil {
		return nil, run, err
	}
	w.Threads, w.Contexts, w.Exemplars = Threads(m), Contexts(m), Exemplars(m)
	w.Rows = Rows(m)
	return w, run, nil
}

// Threads reads a window's threads.
func Threads(m *atysv1.Window) (threads []profile.Thread) {
	for _, t := range m.GetThreads() {
		threads = append(threads, profile.Thread{PID: int(t.GetPid()), TID: int(t.GetTid()), Process: t.GetProcess(), Name: t.GetName(), Exact: exact(t.GetExact()),
			Pruned: t.GetPruned() || profile.NamedPruned(t.GetName())}) // earlier agents send the name alone
	}
	return threads
}

// Contexts reads a window's contexts.
func Contexts(m *atysv1.Window) (contexts []profile.Context) {
	for _, c := range m.GetContexts() {
		contexts = append(contexts, profile.Context{Reason: c.GetReason(), Endpoint: c.GetEndpoint(), Interval: c.GetInterval(), Labels: c.GetLabels()})
	}
	return contexts
}

// Exemplars reads a window's exemplars, including those that earlier agents sent as contexts.
func Exemplars(m *atysv1.Window) (exemplars []profile.Exemplar) {
	for _, e := range m.GetExemplars() {
		exemplars = append(exemplars, profile.Exemplar{Trace: e.GetTrace(), Span: e.GetSpan(), Stack: profile.StackID(e.GetStack()),
			Thread: profile.ThreadID(e.GetThread()), Context: profile.ContextID(e.GetContext()), Time: time.Duration(e.GetAfterNs()), Value: e.GetValue()})
	}
	rows := m.GetRows()
	for i, id := range rows.GetContext() {
		if id == 0 || len(m.GetTypes()) == 0 {
			continue
		}
		c := m.Contexts[id-1]
		if c.GetTrace() == "" && c.GetSpan() == "" {
			continue
		}
		e := profile.Exemplar{Trace: c.GetTrace(), Span: c.GetSpan(), Stack: profile.StackID(rows.Stack[i]), Context: profile.ContextID(id), Value: rows.Value[i] * m.Types[0].GetScale()}
		if len(rows.GetThread()) > 0 {
			e.Thread = profile.ThreadID(rows.Thread[i])
		}
		exemplars = append(exemplars, e)
	}
	return profile.ChooseExemplars(exemplars)
}

// stacks finds those of hashes. Most calls of a forest end no stack.
func stacks(l *profile.Forest, hashes []profile.Hash) ([]profile.Stack, error) {
	nodes := make(map[profile.Hash]int, len(hashes))
	for _, hash := range hashes {
		nodes[hash] = -1
	}
	for i := range l.Calls {
		if _, ok := nodes[l.Calls[i].Hash]; ok {
			nodes[l.Calls[i].Hash] = i
		}
	}
	stacks := make([]profile.Stack, 0, len(hashes))
	for _, hash := range hashes {
		node := nodes[hash]
		if node < 0 {
			return nil, malformed("a window's stack is not in its dictionary")
		}
		places, end := l.Stack(node)
		s := profile.Stack{End: end, Locations: make([]profile.LocationID, len(places))}
		for i, p := range places {
			s.Locations[i] = profile.LocationID(p)
		}
		stacks = append(stacks, s)
	}
	return stacks, nil
}

// Rows reads columns that CheckRows has found right. They are shared with the message.
func Rows(m *atysv1.Window) profile.Rows {
	r, types := m.GetRows(), m.GetTypes()
	n := len(r.GetStack())
	rows := profile.Rows{
		Types: len(types), Stack: ids[profile.StackID](r.GetStack()), Thread: ids[profile.ThreadID](r.GetThread()), Context: ids[profile.ContextID](r.GetContext()),
		Slot: r.GetSlot(), Peer: ids[profile.PeerID](r.GetPeer()), N: r.GetN(), Values: make([]int64, n*len(types)), Squares: make([]float64, n*len(types)),
	}
	if len(rows.Slot) == 0 {
		rows.Slot = nil
	}
	for t, typ := range types {
		for i := range n {
			rows.Values[i*rows.Types+t] = r.Value[t*n+i] * typ.GetScale()
		}
	}
	if inSpread(types) {
		squared := float64(types[0].GetScale()) * float64(types[0].GetScale())
		for i := range n {
			at := i * rows.Types
			rows.Squares[at] = profile.Alike(rows.N[i], rows.Values[at])
			if len(r.GetSpread()) > 0 && rows.N[i] > 0 {
				rows.Squares[at] += float64(r.Spread[i]) * squared
			}
		}
	}
	setVariances(&rows, types, r.GetVariance())
	return rows
}

// setVariances sets the squares of the types that are in the column variance. Earlier agents
// do not send it: the squares of later types stay unknown.
func setVariances(rows *profile.Rows, types []*atysv1.ValueType, column []float32) {
	if len(column) == 0 {
		return
	}
	for t, of := range inVariance(types) {
		squared := float64(of.GetScale()) * float64(of.GetScale())
		for i := range rows.Len() {
			at := i*rows.Types + t
			if rows.Squares[at] = float64(column[i]) * squared; of.GetVariance() == uint32(profile.FromWeights) {
				rows.Squares[at] += profile.Alike(rows.N[i], rows.Values[at])
			}
		}
		column = column[rows.Len():]
	}
}

// Groups reads the values by replicate group of a window that contains others: for each of the
// values of Rows, in their order.
func Groups(m *atysv1.Window) []int64 {
	column, types := m.GetRows().GetGroups(), len(m.GetTypes())
	if len(column) == 0 {
		return nil
	}
	n, groups := len(m.GetRows().GetStack()), make([]int64, len(column))
	for t, typ := range m.GetTypes() {
		for i := range n {
			for g, v := range column[(t*n+i)*replicateGroups : (t*n+i+1)*replicateGroups] {
				groups[(i*types+t)*replicateGroups+g] = v * typ.GetScale()
			}
		}
	}
	return groups
}

// SealGroups writes what Groups reads, for values that are multiples of the types' scales.
func SealGroups(groups []int64, types []*atysv1.ValueType) []int64 {
	n, column := len(groups)/replicateGroups/len(types), make([]int64, len(groups))
	for t, typ := range types {
		for i := range n {
			for g, v := range groups[(i*len(types)+t)*replicateGroups : (i*len(types)+t+1)*replicateGroups] {
				column[(t*n+i)*replicateGroups+g] = v / typ.GetScale()
			}
		}
	}
	return column
}

// ids converts a column of identifiers; nil if it is empty.
func ids[T ~uint32](numbers []uint32) []T {
	if len(numbers) == 0 {
		return nil
	}
	out := make([]T, len(numbers))
	for i, v := range numbers {
		out[i] = T(v)
	}
	return out
}
