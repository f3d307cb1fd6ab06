package wire

import (
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/wire/atysv1"
)

var update = flag.Bool("update", false, "write golden files")

// window is a random one whose values no rounding touches and whose squares are
// possible ones. Points of time are not sealed.
func window(seed uint64) *profile.Window { return windowOf(seed, profiletest.Random) }

func windowOf(seed uint64, random func(*rand.Rand) *profile.Window) *profile.Window {
	r := rand.New(rand.NewPCG(seed, 1))
	w := random(r)
	w.Samples = nil
	w.Types[0].Period = min(r.Int64N(8), 3) // values of such are kept as they are
	for _, row := range w.Rows.All() {
		row.Values[0] = row.N * (r.Int64N(1e6) + 1)
		row.Squares[0] = profile.Alike(row.N, row.Values[0])
		if row.N > 1 {
			row.Squares[0] += float64(r.Int64N(1e6))
		}
	}
	return w
}

func throughBytes[M interface {
	proto.Message
	*T
}, T any](t *testing.T, m M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := M(new(T))
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatIsSealedOpensTheSame(t *testing.T) {
	for seed := range uint64(300) {
		want := window(seed)
		run := profile.Run{byte(seed), 2, 3}
		got, gotRun, err := Open(throughBytes(t, Seal(want, run)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if gotRun != run {
			t.Fatalf("seed %d: run %x, want %x", seed, gotRun, run)
		}
		if diff := profiletest.DiffKept(want, got); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}

// TestFarewell opens windows of this version and of one that said farewell in a comment. That
// version reads the same comment.
func TestFarewell(t *testing.T) {
	w := window(1)
	w.Farewell = true
	now := Seal(w, profile.Run{1})
	before := throughBytes(t, now)
	before.Window.Farewell = false
	for version, s := range map[string]*atysv1.Spooled{"this": now, "the one before": before} {
		got, _, err := Open(s)
		if err != nil || !got.Farewell || len(got.Comments) != len(w.Comments) {
			t.Errorf("%s version: %+v, %v", version, got.Head, err)
		}
	}
	now.Window.Comments = nil
	if got, _, err := Open(now); err != nil || !got.Farewell {
		t.Errorf("without the comment: %v", err)
	}
}

// TestRoundingGivesBackWhatItTakes seals weights of a period that is kept in steps.
func TestRoundingGivesBackWhatItTakes(t *testing.T) {
	w := window(1)
	w.Types[0].Period = 10_101_010
	scale := float64(w.Types[0].Period / 2)
	got, _, err := Open(Seal(w, profile.Run{}))
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range got.Rows.All() {
		if off := math.Abs(float64(row.Values[0] - w.Rows.At(i).Values[0])); off > scale {
			t.Errorf("row %d is off by %g, more than a step of %g", i, off, scale)
		}
	}
	if off := math.Abs(float64(got.Total(0) - w.Total(0))); off > scale/2 {
		t.Errorf("the sum is off by %g, more than half a step of %g", off, scale)
	}
}

// receiver is the other end: what it was taught, and what it is told.
type receiver struct {
	stacks map[profile.Hash]bool
	lesson []byte // all that it was ever taught
}

func (r *receiver) unknown(t *testing.T, request *atysv1.PushRequest) (unknown []profile.Hash) {
	t.Helper()
	l, err := Learn(request.GetDictionary())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Calls {
		r.stacks[n.Hash] = true
	}
	r.lesson = both(r.lesson, request.GetDictionary())
	hashes, err := Hashes(request.GetStacks())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hashes {
		if !r.stacks[h] {
			unknown = append(unknown, h)
		}
	}
	return unknown
}

// TestBatch sends windows of one program to a receiver that forgets: it is told
// again, and every window opens as it was.
func TestBatch(t *testing.T) {
	r := &receiver{stacks: map[profile.Hash]bool{}}
	thought := map[profile.Hash]bool{} // what the sender thinks is known
	for seed := range uint64(40) {
		if seed%10 == 5 {
			clear(r.stacks)
		}
		var windows []*profile.Window
		var sealed []*atysv1.Spooled
		for i := range uint64(5) {
			w := window(seed*5 + i)
			windows, sealed = append(windows, w), append(sealed, Seal(w, profile.Run{1}))
		}
		batch := func() (*atysv1.PushRequest, []profile.Hash) {
			b := NewBatch(func(h profile.Hash) bool { return thought[h] })
			for _, s := range sealed {
				if err := b.Add(s); err != nil {
					t.Fatal(err)
				}
			}
			return throughBytes(t, b.Request()), b.Hashes()
		}
		request, hashes := batch()
		if unknown := r.unknown(t, request); len(unknown) > 0 {
			for _, h := range unknown {
				delete(thought, h)
			}
			request, hashes = batch()
			if unknown := r.unknown(t, request); len(unknown) > 0 {
				t.Fatalf("%d stacks are unknown after they were explained", len(unknown))
			}
		}
		for _, h := range hashes {
			thought[h] = true
		}
		for i, m := range request.GetWindows() {
			r.compare(t, windows[i], request, m)
		}
	}
}

// compare opens a window of a request with what the receiver was ever taught.
func (r *receiver) compare(t *testing.T, want *profile.Window, request *atysv1.PushRequest, m *atysv1.Window) {
	t.Helper()
	s := &atysv1.Spooled{Window: m, Series: request.GetSeries()[m.GetSeries()], Stacks: request.GetStacks(), Dictionary: r.lesson}
	got, _, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := profiletest.DiffKept(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// both is a dictionary of all that two hold.
func both(dictionaries ...[]byte) []byte {
	d := newDictionary()
	for _, one := range dictionaries {
		l, err := Learn(one)
		if err != nil {
			panic(err) // it was learnt before
		}
		places := make([]place, len(l.Places))
		for i, p := range l.Places {
			places[i] = d.location(p.Location, p.Names)
		}
		for i := range l.Calls {
			calls, end := l.Stack(i)
			s := profile.Stack{End: end}
			for _, p := range calls {
				s.Locations = append(s.Locations, profile.LocationID(p))
			}
			d.stack(places, s)
		}
	}
	return d.bytes()
}

// TestGolden reads what atys wrote when its messages were first released, and
// since windows tell how many instances were recorded, and what that cost.
func TestGolden(t *testing.T) {
	after, before := windowOf(7, profiletest.Earlier), windowOf(7, profiletest.Earlier)
	before.Instances, before.Cost = profile.Instances{}, profile.Cost{}
	for file, want := range map[string]*profile.Window{"testdata/spooled-1.hex": before, "testdata/spooled-2.hex": after} {
		if _, err := os.Stat(file); *update && errors.Is(err, os.ErrNotExist) { // what was released stays
			data, err := proto.MarshalOptions{Deterministic: true}.Marshal(Seal(want, profile.Run{7}))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(hex.EncodeToString(data)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data, err := hex.DecodeString(string(text[:len(text)-1]))
		if err != nil {
			t.Fatal(err)
		}
		s := &atysv1.Spooled{}
		if err := proto.Unmarshal(data, s); err != nil {
			t.Fatal(err)
		}
		got, run, err := Open(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Exemplars) == 0 {
			t.Errorf("%s: traces became no exemplars", file)
		}
		got.Exemplars, want.Exemplars = nil, nil // which row of a span is kept depends on values, which window changes
		if diff := profiletest.DiffKept(want, got); diff != "" || run != (profile.Run{7}) {
			t.Errorf("%s: run %x:\n%s", file, run, diff)
		}
	}
}

// seed is a window of so many rows as one needs to begin with: a fuzzer minimizes
// what it finds interesting byte by byte, and of kilobytes it tries a few in all.
func seed(rows int) *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: "t", Target: profile.Labels{"service": "shop"}, Duration: time.Second,
		Types: []profile.ValueType{profile.CPUTime(10)}})
	names := []profile.Frame{{Function: "f", Linkage: "_f", File: "a.c", Line: 7, StartLine: 5, Mapping: "m", Kind: profile.KindNative, Inlined: true}, {Function: "g"}}
	leaf := b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ab", Offset: 16}, names...)
	for i := range rows {
		caller := b.Named(profile.Frame{Function: string(rune('h' + i))})
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf, caller}, profile.EndComplete), N: 1, Values: []int64{10}, Squares: []float64{100}})
	}
	return b.Window()
}

// FuzzOpen opens what nobody sealed: an error, or a window that opens the same
// once it is sealed.
func FuzzOpen(f *testing.F) {
	for rows := range 3 {
		data, err := proto.Marshal(Seal(seed(rows), profile.Run{}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &atysv1.Spooled{}
		if proto.Unmarshal(data, s) != nil {
			return
		}
		once, run, err := Open(s)
		if err != nil {
			return
		}
		twice, again, err := Open(Seal(once, run))
		if err != nil || again != run {
			t.Fatalf("sealed again: run %x after %x, %v", again, run, err)
		}
		if once.Rows.Len() != twice.Rows.Len() || once.N() != twice.N() {
			t.Errorf("%d rows, %d samples; sealed again %d and %d", once.Rows.Len(), once.N(), twice.Rows.Len(), twice.N())
		}
		b := NewBatch(func(profile.Hash) bool { return false })
		if err := b.Add(s); err != nil {
			t.Errorf("opens, but fits no batch: %v", err)
		}
	})
}

// TestPrunedThreads: agents of before the field send the name alone.
func TestPrunedThreads(t *testing.T) {
	w := &profile.Window{Threads: []profile.Thread{{PID: 7, Name: "main"}, {PID: 7, Name: profile.PrunedThreads, Pruned: true}}}
	m := Seal(w, profile.Run{}).GetWindow()
	for _, known := range []bool{true, false} {
		m.Threads[1].Pruned = known
		if got := Threads(m); got[0].Pruned || !got[1].Pruned {
			t.Errorf("field %v: %+v", known, got)
		}
	}
}

// TestMisnumbered sends a window through a relay that renumbers rows only, as earlier versions
// do: its peers and exemplars are dropped, and nothing else.
func TestMisnumbered(t *testing.T) {
	w := seed(3)
	w.Rows.SetPeer(0, 2)
	w.Exemplars = []profile.Exemplar{{Trace: "t", Stack: 1}}
	b := NewBatch(func(profile.Hash) bool { return true })
	if err := b.Add(Seal(w, profile.Run{1})); err != nil {
		t.Fatal(err)
	}
	r := throughBytes(t, b.Request())
	if _, err := CheckPush(r); err != nil || len(r.Windows[0].GetRows().GetPeer()) == 0 || len(r.Windows[0].GetExemplars()) != 1 {
		t.Fatalf("%v: %v", err, r.Windows[0])
	}
	r.Stacks = append(Table([]profile.Hash{{9}}), r.Stacks...)
	for i := range r.Windows[0].Rows.Stack {
		r.Windows[0].Rows.Stack[i]++
	}
	if _, err := CheckPush(r); err != nil || len(r.Windows[0].GetRows().GetPeer()) != 0 || len(r.Windows[0].GetExemplars()) != 0 || len(r.Windows[0].GetComments()) != 1 {
		t.Errorf("%v: %v", err, r.Windows[0])
	}
}
