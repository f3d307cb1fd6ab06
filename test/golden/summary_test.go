package golden

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// summary is what windows hold, added up by what they are of: each value of each of
// them counts in some line. It names what there was at first, so that what later
// versions add to the model changes nothing.
type summary map[string]*amount

// amount is what counts under one key.
type amount struct {
	count, n int64
	values   []int64
	squares  float64
	times    []time.Duration
	sum      uint64
}

func (s summary) at(format string, args ...any) *amount {
	key := fmt.Sprintf(format, args...)
	a := s[key]
	if a == nil {
		a = &amount{}
		s[key] = a
	}
	a.count++
	return a
}

func (a *amount) row(r profile.Row) {
	a.n += r.N
	a.squares += r.Sum(0).Squares
	for i, v := range r.Values {
		a.value(i, v)
	}
}

func (a *amount) value(i int, v int64) {
	if i == len(a.values) {
		a.values = append(a.values, 0)
	}
	a.values[i] += v
}

func (a *amount) duration(times ...time.Duration) {
	for i, d := range times {
		if i == len(a.times) {
			a.times = append(a.times, 0)
		}
		a.times[i] += d
	}
}

// add adds a window. Of says what it is of in a few words, in front of each line.
func (s summary) add(of string, w *profile.Window) {
	h := &w.Head
	a := s.at("%s of %s %v, %q", of, w.Target, typesOf(h.Types), h.Design)
	for _, r := range w.Rows.All() {
		a.row(r)
	}
	a.duration(h.Start.Sub(Epoch()), h.Duration, h.Idle, h.Watched)
	if h.Exact != (profile.Exact{}) {
		s.at("%s exact, by %q, interrupts %v", of, h.Exact.Source, h.Exact.IncludesInterrupt).duration(h.Exact.CPU, h.Exact.User, h.Exact.System)
	}
	s.at("%s cost", of).duration(h.Cost.User, h.Cost.BPF, h.Cost.Interrupt)
	if h.ClockError == profile.ClockUnknown {
		s.at("%s clock unknown", of)
	} else {
		s.at("%s clock", of).duration(h.ClockOffset, h.ClockError)
	}
	s.at("%s rate %v %q %q %q %q, slots of %v, instances %v", of, h.Rate.Hertz, h.Rate.Policy, h.Rate.Reason, h.Rate.Why, h.Rate.By, h.Slot, h.Instances)
	for _, l := range h.Losses {
		a := s.at("%s loss %q %q", of, l.Reason, l.Detail)
		a.n += l.N
		a.value(0, l.Value)
	}
	for _, c := range h.OldComments() {
		s.at("%s comment %q", of, c)
	}
	for _, t := range w.Threads {
		s.at("%s thread %d %d %q %q, exact by %q", of, t.PID, t.TID, t.Process, t.Name, t.Exact.Source).duration(t.Exact.CPU, t.Exact.User, t.Exact.System)
	}
	for _, r := range w.Rows.All() {
		s.addRow(of, w, r)
	}
	for _, one := range w.Samples {
		a := s.at("%s samples with times", of)
		a.value(0, one.Weight)
		a.value(1, one.Delta)
		a.value(2, int64(one.CPU))
		a.duration(one.Time)
	}
}

func (s summary) addRow(of string, w *profile.Window, r profile.Row) {
	stack := w.Stacks[r.Stack]
	if stack.End != profile.EndComplete {
		s.at("%s ended %s", of, stack.End).row(r)
	}
	if r.Slot != 0 {
		s.at("%s slot %d", of, r.Slot).row(r)
	}
	if t := w.Thread(r.Thread); r.Thread != 0 {
		s.at("%s rows of thread %d %q", of, t.TID, t.Name).row(r)
	}
	if r.Context != 0 {
		c, traced := w.Contexts[r.Context-1], profile.Exemplar{}
		if i := slices.IndexFunc(w.Exemplars, func(e profile.Exemplar) bool {
			return e.Context == r.Context && e.Stack == r.Stack && e.Thread == r.Thread
		}); i >= 0 {
			traced = w.Exemplars[i] // traces were part of contexts
		}
		s.at("%s context %q %q %q %q", of, traced.Trace, traced.Span, c.Endpoint, c.Interval).row(r)
	}
	whole := fnv.New64a()
	for i, id := range stack.Locations {
		l := w.Locations[id]
		fmt.Fprintf(whole, "%s %q %d %q %q %d", l.Kind, l.BuildID, l.Offset, l.Name, l.File, l.Line)
		for _, f := range w.Frames(id) {
			fmt.Fprintf(whole, "%q %q %q %d %d %q %s %s %v", f.Function, f.Linkage, f.File, f.Line, f.StartLine, f.Mapping, f.Kind, f.Class, f.Inlined)
		}
		if i == 0 {
			s.at("%s in %s", of, w.Frames(id)[0].Function).row(r)
		}
	}
	fmt.Fprint(whole, r.N, r.Values)
	s.at("%s sum over stacks", of).sum += whole.Sum64()
}

// String is a line for each key, sorted.
func (s summary) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		a := s[key]
		fmt.Fprintf(&b, "%s: %d times", key, a.count)
		if a.n != 0 || len(a.values) > 0 {
			fmt.Fprintf(&b, ", n %d, values %v", a.n, a.values)
		}
		if a.squares != 0 {
			fmt.Fprintf(&b, ", squares %.4g", a.squares)
		}
		if len(a.times) > 0 {
			fmt.Fprintf(&b, ", times %v", a.times)
		}
		if a.sum != 0 {
			fmt.Fprintf(&b, ", %016x", a.sum)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// kept is a summary of all that a store has, of all tenants and levels.
func kept(t *testing.T, s store.Store) string {
	t.Helper()
	ctx, sum := t.Context(), summary{}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(tenants)
	for _, tenant := range tenants {
		for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
			err := s.Scan(ctx, tenant, store.Query{Level: level, To: Now().Add(time.Hour)}, func(w *profile.Window, _ profile.Run) error {
				name := cmp.Or(w.Target[store.ServiceLabel], "machine")
				sum.add(fmt.Sprintf("%s %s %s %s:", tenant, level, w.Task, strings.TrimSuffix(name+" "+w.Target["node"], " ")), w)
				return nil
			})
			if err != nil {
				t.Fatalf("scan %s of %s: %v", level, tenant, err)
			}
		}
		sum.tenant(t, ctx, s, tenant)
	}
	return sum.String()
}

// tenant adds what is no window.
func (s summary) tenant(t *testing.T, ctx context.Context, of store.Store, tenant string) {
	t.Helper()
	dropped, err := of.Dropped(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	for level, before := range dropped {
		s.at("%s: %s dropped before %v", tenant, level, before.UTC())
	}
	stale, err := of.Stale(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range stale {
		s.at("%s: stale is %s of %v", tenant, step.Level, step.Start.UTC())
	}
	unnamed, err := of.Unnamed(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range unnamed {
		s.at("%s: unnamed %s", tenant, p.Location.BuildID)
	}
}

// typesOf leaves out a temporality and a base that are usual: the versions that wrote golden
// files knew no others.
func typesOf(types []profile.ValueType) (all []string) {
	for _, t := range types {
		text := fmt.Sprintf("%s %s %d", t.Kind, t.Unit, t.Period)
		if t.Temporality != profile.Delta {
			text += " " + t.Temporality.String()
		}
		if base := t.EncodedBase(); base != "" {
			text += " of " + base
		}
		all = append(all, "{"+text+"}")
	}
	return all
}
