// Package profiletest makes random windows and compares windows, for the tests of what carries them.
package profiletest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// Random gives a window that uses every part of the model. Windows made from
// the same names agree on what a location is called, as those of one program do.
func Random(r *rand.Rand) *profile.Window { return random(r, true) }

// Earlier returns the window that Random made before rows had peers, reasons and variances of
// all types: golden files have it.
func Earlier(r *rand.Rand) *profile.Window { return random(r, false) }

func random(r *rand.Rand, peers bool) *profile.Window {
	b := profile.NewBuilder(randomHead(r))
	if peers && b.Head().Duration%10 == 6 {
		b.Head().Types[1].Variance = profile.Measured
	}
	timed := r.IntN(3) == 0
	for range r.IntN(60) + 1 {
		row := profile.Row{N: r.Int64N(50) + 1, Values: []int64{r.Int64N(1e9) + 1, r.Int64N(1000)}, Slot: uint32(r.IntN(3))}
		row.Squares = []float64{float64(r.Int64N(1 << 45))} // sums stay exact
		row.Stack = b.Stack(randomStack(r, b), profile.End(r.IntN(int(profile.EndLost)+1)))
		if r.IntN(3) > 0 {
			row.Thread = b.Thread(randomThread(r))
		}
		if r.IntN(4) == 0 {
			trace, span := pick(r, "", "4bf92f"), pick(r, "", "00f067")
			c := profile.Context{Endpoint: pick(r, "", "GET /cart", "POST /"), Interval: pick(r, "", "checkout")}
			one := int64(1)
			if peers && row.N%3 == 0 {
				c.Reason, c.Labels = "run queue", `{customer="a"}`
			}
			if peers && trace+span != "" {
				span, one = fmt.Sprint(span, row.N%7), row.N
			}
			row.Context = b.Context(c)
			if trace+span != "" {
				b.AddExemplar(profile.Exemplar{Trace: trace, Span: span, Stack: row.Stack, Thread: row.Thread, Context: row.Context, Value: row.Values[0] / one})
			}
		}
		if peers && b.Head().Duration%8 == 5 && row.N%2 == 1 {
			row.Peer = profile.PeerID(row.Stack) // an earlier one
		}
		if b.Head().Types[1].Variance == profile.Measured {
			row.Squares = append(row.Squares, float64(row.N*row.Values[1]))
		}
		b.Add(row)
		if timed {
			b.AddSample(profile.Sample{Time: time.Duration(r.Int64N(1e9)), CPU: r.IntN(64), Thread: row.Thread, Stack: row.Stack,
				Weight: r.Int64N(1e7), Delta: r.Int64N(10)})
		}
	}
	return b.Window()
}

func randomHead(r *rand.Rand) profile.Head {
	h := profile.Head{
		Task:     pick(r, "", "nightly", `a "quoted" task`),
		Target:   profile.Labels{"service.name": pick(r, "shop", "cart"), "odd key=": pick(r, "x y", "")},
		Start:    time.Unix(1_700_000_000+r.Int64N(100), r.Int64N(1e9)).UTC(),
		Duration: time.Duration(r.Int64N(int64(time.Minute))),
		Types: []profile.ValueType{profile.CPUTime(pick(r, int64(0), 10101010)),
			{Kind: "page-faults", Unit: "count", Period: 1}},
		Design:      pick(r, profile.DesignUnknown, profile.DesignRandomised, profile.DesignThinned),
		Exact:       randomExact(r),
		ClockOffset: time.Duration(r.IntN(3)) * time.Millisecond,
		ClockError:  time.Duration(r.IntN(1000)),
		Idle:        time.Duration(r.IntN(1e6)),
		Watched:     time.Duration(r.IntN(1e6)),
	}
	if h.Duration%3 == 0 { // no number is drawn for it: the others stay what they were in golden files
		h.Instances = profile.Instances{Recorded: 3, Eligible: 3 + int(h.Duration%1000)}
	}
	// Drawn from nothing, so that what is drawn after it stays what it was.
	h.Cost = profile.Cost{User: h.Idle, BPF: h.Watched, Interrupt: h.ClockError}
	if h.Duration%4 == 0 {
		h.Rate = profile.Rate{Hertz: 999 / float64(1+h.Duration%7), Policy: "atys", Reason: "changed", Why: `divergence "0.3", threshold 0.05`, By: profile.ByServer}
	}
	if h.Duration%7 == 3 {
		h.Slot = 10 * time.Second
	}
	if h.Duration%5 == 2 {
		h.Exact.Wall, h.Exact.RunQueue, h.Exact.Bytes = 7*h.Exact.CPU, h.Exact.System, int64(h.Exact.User)
		h.Types[1].Base = profile.BaseBytes
	}
	if h.Duration%9 == 4 {
		h.Types[1].Base = profile.BaseRunQueue
	}
	if h.Duration%6 == 1 {
		h.Types[0].Base = profile.BaseNone
	}
	for range r.IntN(3) {
		h.AddLoss(profile.Loss{Reason: pick(r, profile.LossDropped, profile.LossTruncated), Detail: pick(r, "", "ring full"),
			N: r.Int64N(9) + 1, Value: r.Int64N(1e6)})
		if c := pick(r, "host: a", "atys.window: not ours", "two\nlines"); !slices.Contains(h.Comments, c) {
			h.Comments = append(h.Comments, c)
		}
	}
	return h
}

func randomExact(r *rand.Rand) profile.Exact {
	user, system := time.Duration(r.Int64N(1e9)), time.Duration(r.Int64N(1e8))
	return profile.Exact{CPU: user + system, User: user, System: system, Source: "schedstat", IncludesInterrupt: r.IntN(2) == 0}
}

func randomThread(r *rand.Rand) profile.Thread {
	t := profile.Thread{PID: 7, TID: 7 + r.IntN(4), Process: "shop; drop", Name: pick(r, "main", "http-1", "a b")}
	if r.IntN(2) == 0 {
		t.Exact = randomExact(r)
	}
	return t
}

func randomStack(r *rand.Rand, b *profile.Builder) []profile.LocationID {
	var stack []profile.LocationID
	for range r.IntN(8) {
		stack = append(stack, randomLocation(r, b))
	}
	return stack
}

// randomLocation picks one of a few locations; which one decides its names.
func randomLocation(r *rand.Rand, b *profile.Builder) profile.LocationID {
	i := r.IntN(12)
	offset := uint64(0x1000 + 0x10*i)
	name := fmt.Sprintf("fn%d", i/2)
	switch r.IntN(6) {
	case 0: // an unnamed one
		return b.Location(profile.Location{Kind: profile.KindNative, BuildID: "abcd", Offset: offset})
	case 1: // named and inlined
		f := profile.Frame{Function: name + "<int>(char, long)", Linkage: "_Z" + name, File: "/src/a.cc", Line: 10 + i, StartLine: 5,
			Mapping: "/usr/bin/shop", Kind: profile.KindNative, Class: profile.ClassApplication}
		in := f
		in.Function, in.Linkage, in.Inlined = "inlined "+name, "", true
		return b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ef01", Offset: offset}, in, f)
	case 2:
		return b.Location(profile.Location{Kind: profile.KindKernel, BuildID: "kern", Offset: offset},
			profile.Frame{Function: "sys_" + name, Mapping: "[kernel.kallsyms]", Kind: profile.KindKernel, Class: profile.ClassKernel})
	case 3:
		return b.Named(profile.Frame{Function: name, File: "/app/main.py", Line: i, Kind: profile.KindPython, Mapping: "/app/main.py"})
	case 4: // identified by more than its name
		return b.Location(profile.Location{Kind: profile.KindJavaCompiled, Name: "com/Shop." + name + "(I)V", File: "Shop.java", Line: i},
			profile.Frame{Function: "com.Shop." + name, File: "Shop.java", Line: i, Kind: profile.KindJavaCompiled})
	default: // names that other formats use as signs
		return b.Named(profile.Frame{Function: pick(r, "a;b", "100% [x]", "%3B", " lead", "#c", "x_[k]", "two\nlines", "é <b>\x1b[0m", "n 5")})
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// Diff tells in what two windows differ, leaving aside the order of rows,
// losses, comments and dictionaries, and dictionary entries nothing uses; ""
// if they are the same.
func Diff(a, b *profile.Window) string {
	left, right := Canonical(a), Canonical(b)
	var out []string
	for _, l := range left {
		if !slices.Contains(right, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range right {
		if !slices.Contains(left, l) {
			out = append(out, "+ "+l)
		}
	}
	if len(out) == 0 && len(left) != len(right) {
		out = append(out, fmt.Sprintf("%d lines and %d", len(left), len(right)))
	}
	const most = 6 // one is mostly enough to see why
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, "\n")
}

// DiffKept is Diff for a window that a store has kept, which may round sums of
// squared weights of a row by a quarter.
func DiffKept(a, b *profile.Window) string {
	left, ofLeft := withoutSquares(a)
	right, ofRight := withoutSquares(b)
	if diff := Diff(left, right); diff != "" {
		return diff
	}
	for row, squares := range ofLeft {
		if got := ofRight[row]; math.Abs(got-squares) > 0.25*squares {
			return fmt.Sprintf("squares %g, not %g, of %s", got, squares, row)
		}
	}
	return ""
}

// withoutSquares takes the sums of squared weights out, by rows as they are
// written then.
func withoutSquares(w *profile.Window) (*profile.Window, map[string]float64) {
	out, squares := *w, map[string]float64{}
	out.Rows = w.Rows.Clone()
	clear(out.Rows.Squares)
	for i, r := range out.Rows.All() {
		squares[row(&out, r)] += w.Rows.At(i).Sum(0).Squares
	}
	return &out, squares
}

// Canonical writes a window as lines that do not depend on its order.
func Canonical(w *profile.Window) []string {
	h := &w.Head
	out := []string{
		fmt.Sprintf("task %q design %q target %s", h.Task, h.Design, h.Target),
		fmt.Sprintf("instances %d of %d", h.Instances.Recorded, h.Instances.Eligible),
		fmt.Sprintf("rate %+v, slots of %v", h.Rate, h.Slot),
		fmt.Sprintf("start %s duration %s clock %s %s", h.Start.UTC().Format(time.RFC3339Nano), h.Duration, h.ClockOffset, h.ClockError),
		fmt.Sprintf("types %v", typesOf(h.Types)),
		fmt.Sprintf("exact %s idle %s watched %s", exactOf(h.Exact), h.Idle, h.Watched),
		fmt.Sprintf("cost %+v", h.Cost),
	}
	for _, l := range h.Losses {
		out = append(out, fmt.Sprintf("loss %+v", l))
	}
	if h.Origin != profile.OriginAgent {
		out = append(out, fmt.Sprintf("origin %d", h.Origin))
	}
	if h.Farewell {
		out = append(out, "farewell")
	}
	for _, c := range h.Comments {
		out = append(out, fmt.Sprintf("comment %q", c))
	}
	for _, t := range w.Threads {
		if t.Exact != (profile.Exact{}) {
			out = append(out, "thread "+threadOf(t))
		}
	}
	out = append(out, Rows(w)...)
	for _, e := range w.Exemplars {
		out = append(out, fmt.Sprintf("exemplar %q %q after %s value=%d context=%+v %s", e.Trace, e.Span, e.Time, e.Value, w.Context(e.Context), place(w, e.Stack, e.Thread)))
	}
	for _, s := range w.Samples {
		out = append(out, fmt.Sprintf("sample %s cpu=%d weight=%d delta=%d %s", s.Time, s.CPU, s.Weight, s.Delta,
			place(w, s.Stack, s.Thread)))
	}
	slices.Sort(out)
	return out
}

// typesOf formats types. It leaves out the usual temporality and base, which older golden
// files do not have.
func typesOf(types []profile.ValueType) (all []string) {
	for _, t := range types {
		text := fmt.Sprintf("{Kind:%s Unit:%s Period:%d", t.Kind, t.Unit, t.Period)
		if t.Temporality != profile.Delta {
			text += " " + t.Temporality.String()
		}
		if t.Variance != profile.FromWeights {
			text += " variance " + t.Variance.String()
		}
		if base := t.EncodedBase(); base != "" {
			text += " of " + base
		}
		all = append(all, text+"}")
	}
	return all
}

func threadOf(t profile.Thread) string {
	return fmt.Sprintf("{PID:%d TID:%d Process:%s Name:%s Exact:%s}", t.PID, t.TID, t.Process, t.Name, exactOf(t.Exact))
}

// exactOf writes totals, those beside CPU time only where there are any.
func exactOf(e profile.Exact) string {
	text := fmt.Sprintf("{CPU:%v User:%v System:%v Source:%s IncludesInterrupt:%v}", e.CPU, e.User, e.System, e.Source, e.IncludesInterrupt)
	if e.Wall != 0 || e.RunQueue != 0 || e.Bytes != 0 {
		text += fmt.Sprintf(" wall %v, run queue %v, %d bytes", e.Wall, e.RunQueue, e.Bytes)
	}
	return text
}

// Rows writes a window's rows alone, sorted.
func Rows(w *profile.Window) []string {
	var out []string
	for _, r := range w.Rows.All() {
		out = append(out, row(w, r))
	}
	slices.Sort(out)
	return out
}

func row(w *profile.Window, r profile.Row) string {
	text := fmt.Sprintf("row n=%d values=%v squares=%g slot=%d context=%+v %s", r.N, r.Values, r.Squares, r.Slot, w.Context(r.Context), place(w, r.Stack, r.Thread))
	if r.Peer != 0 {
		text += " peer " + place(w, profile.StackID(r.Peer-1), 0)
	}
	return text
}

func place(w *profile.Window, stack profile.StackID, thread profile.ThreadID) string {
	var b strings.Builder
	t := w.Thread(thread)
	t.Exact = profile.Exact{}
	s := w.Stacks[stack]
	fmt.Fprintf(&b, "thread=%s end=%s", threadOf(t), s.End)
	for _, l := range s.Locations {
		fmt.Fprintf(&b, " at %+v", w.Locations[l])
		if w.Locations[l].BuildID == "" || len(w.Names[l]) > 0 {
			fmt.Fprintf(&b, " %+v", w.Frames(l))
		}
	}
	return b.String()
}
