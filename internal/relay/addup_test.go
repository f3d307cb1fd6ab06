package relay

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// summable is a window of an instance that relays can add up.
func summable(instance int, at time.Time) *profile.Window {
	w := storetest.Window(uint64(instance), "shop", string(rune('a'+instance)), at)
	w.Types, w.Task, w.Duration = w.Types[:1], "t", 10*time.Second
	w.Design, w.Threads, w.Contexts = profile.DesignRandomised, nil, nil
	w.Instances = profile.Instances{Recorded: 2, Eligible: 5}
	w.Types[0] = profile.CPUTime(1)
	w.Rows = w.Rows.Only(0)
	w.Rows.Thread, w.Rows.Context, w.Rows.Peer, w.Exemplars = nil, nil, nil, nil
	return w
}

// TestForwardsDivided checks that windows whose rows have more than a stack and a value are forwarded
// as they are, unless the server accepts sums of them. Levels, windows from programs and those of many
// types always are.
func TestForwardsDivided(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	always := []string{"a level", "a variance of a later version", "another origin", "nine types"}
	for name, change := range map[string]func(w *profile.Window){
		"nothing": func(*profile.Window) {},
		"a context": func(w *profile.Window) {
			w.Contexts = []profile.Context{{Reason: "blocked"}}
			w.Rows.SetContext(0, 1)
		},
		"another origin":                func(w *profile.Window) { w.Origin = profile.OriginPushed },
		"a peer":                        func(w *profile.Window) { w.Rows.SetPeer(0, 1) },
		"an exemplar":                   func(w *profile.Window) { w.Exemplars = []profile.Exemplar{{Trace: "t"}} },
		"slots of 50 ms":                func(w *profile.Window) { w.Slot = 50 * time.Millisecond },
		"a level":                       func(w *profile.Window) { w.Types[0].Temporality = profile.Level },
		"a variance of a later version": func(w *profile.Window) { w.Types[0].Variance = profile.Measured + 1 },
		"a measured variance":           func(w *profile.Window) { w.Types[0].Variance = profile.Measured },
		"eight types":                   func(w *profile.Window) { addTypes(w, 7) },
		"nine types":                    func(w *profile.Window) { addTypes(w, 8) },
	} {
		w := summable(1, at)
		change(w)
		sealed := wire.Seal(w, profile.Run{1})
		b := wire.NewBatch(func(profile.Hash) bool { return true })
		if err := b.Add(sealed); err != nil {
			t.Fatal(err)
		}
		s := newSums([]string{"service"}, true, nil, nil)
		rest, _ := s.add(pushed(b))
		if forwarded := len(rest.GetWindows()) == 1; forwarded != slices.Contains(always, name) {
			t.Errorf("%s: forwarded to a server that takes sums: %v", name, forwarded)
		}
		s = newSums([]string{"service"}, false, nil, nil)
		rest, _ = s.add(pushed(b))
		if forwarded := len(rest.GetWindows()) == 1; forwarded != (name != "nothing") {
			t.Errorf("%s: forwarded: %v", name, forwarded)
			continue
		}
		for _, got := range rest.GetWindows() {
			got.Series = sealed.GetWindow().GetSeries()
			if !proto.Equal(got.GetRows(), sealed.GetWindow().GetRows()) || len(got.GetContexts()) != len(w.Contexts) || len(got.GetExemplars()) != len(w.Exemplars) {
				t.Errorf("%s: the window has changed", name)
			}
		}
	}
}

// addTypes adds value types, whose values are zero.
func addTypes(w *profile.Window, n int) {
	for i := range n {
		w.Types = append(w.Types, profile.ValueType{Kind: fmt.Sprint("waits", i), Unit: "count"})
	}
	rows := profile.Rows{Types: 1 + n}
	for _, row := range w.Rows.All() {
		rows.Append(row)
	}
	w.Rows = rows
}

// divided is a window of an instance with all that sums keep.
func divided(instance int, at time.Time) *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: "t", Target: profile.Labels{"service": "shop", "instance": string(rune('a' + instance))},
		Start: at, Duration: 10 * time.Second, Slot: 50 * time.Millisecond,
		Types: []profile.ValueType{{Kind: "off-cpu", Unit: "nanoseconds", Variance: profile.Measured}, {Kind: "waits", Unit: "count"}}})
	r := rand.New(rand.NewPCG(uint64(instance), 8))
	for i := range int64(40) {
		row := profile.Row{Stack: b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: fmt.Sprint("f", r.IntN(3))})}, profile.EndComplete),
			Context: b.Context(profile.Context{Reason: fmt.Sprint(r.IntN(3))}), Slot: uint32(r.IntN(4)), N: 1, Values: []int64{100 * i, i}, Squares: []float64{float64(i), 0}}
		if i%2 == 0 {
			row.Peer = profile.PeerID(row.Stack) + 1
		}
		b.Add(row)
		b.AddExemplar(profile.Exemplar{Trace: fmt.Sprint(instance), Span: fmt.Sprint(i / 2), Stack: row.Stack, Context: row.Context, Time: time.Duration(i + 1)})
	}
	return b.Window()
}

// TestSumsInAnyOrder adds up windows in several orders, and sums of some of them: rows, contexts
// and exemplars are the same.
func TestSumsInAnyOrder(t *testing.T) {
	var pushes []*wire.Batch
	want := 0.0 // the measured variance of all
	for i := range 4 {
		b := wire.NewBatch(func(profile.Hash) bool { return true })
		w := divided(i, time.Unix(1_700_000_000, int64(4-i)*100_000_000))
		if err := b.Add(wire.Seal(w, profile.Run{byte(i)})); err != nil {
			t.Fatal(err)
		}
		for _, row := range w.Rows.All() {
			want += row.Squares[0]
		}
		pushes = append(pushes, b)
	}
	what := func(b *wire.Batch) string {
		r := b.Request()
		w := r.GetWindows()[0]
		if len(r.GetWindows()) != 1 || len(w.GetExemplars()) != profile.MaxExemplars || len(w.GetRows().GetSlot()) == 0 || len(w.GetRows().GetPeer()) == 0 {
			t.Fatalf("%d windows, %d exemplars", len(r.GetWindows()), len(w.GetExemplars()))
		}
		squares := 0.0
		rows := wire.Rows(w)
		for _, row := range rows.All() {
			squares += row.Squares[0]
		}
		if math.Abs(squares-want) > 1e-6*want {
			t.Errorf("the variance is %v, want %v", squares, want)
		}
		return fmt.Sprintf("%x %v %v %v", r.GetStacks(), w.GetRows(), w.GetContexts(), w.GetExemplars())
	}
	once := what(added(t, pushes...))
	if got := what(added(t, added(t, pushes[2], pushes[0]), pushes[3], added(t, pushes[1]))); got != once {
		t.Errorf("sums of sums are\n%s\nwant\n%s", got, once)
	}
	slices.Reverse(pushes)
	if got := what(added(t, pushes...)); got != once {
		t.Errorf("in the other order it is\n%s\nwant\n%s", got, once)
	}
}

// TestSumsOfSlots adds up windows whose first slots are of one second: of another window of the same
// second, which is cut late, the first slot is of the next one, where another period may begin.
func TestSumsOfSlots(t *testing.T) {
	var pushes []*wire.Batch
	for i, late := range []time.Duration{100 * time.Millisecond, 980 * time.Millisecond, 500 * time.Millisecond} {
		b := wire.NewBatch(func(profile.Hash) bool { return true })
		if err := b.Add(wire.Seal(divided(i, time.Unix(1_700_000_000, 0).Add(late)), profile.Run{byte(i)})); err != nil {
			t.Fatal(err)
		}
		pushes = append(pushes, b)
	}
	var contained []int
	for _, w := range added(t, pushes...).Request().GetWindows() {
		contained = append(contained, len(w.GetContains()))
	}
	if !slices.Equal(contained, []int{2, 1}) {
		t.Errorf("sums contain %d windows, want 2 and 1", contained)
	}
}

func pushed(b *wire.Batch) *push { return &push{request: b.Request(), hashes: b.Hashes()} }

// TestSentAgain sends windows twice before they are passed on, by themselves and added up: each
// counts once, and a sum that contains one of them is forwarded as it is.
func TestSentAgain(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	push := func(instances ...int) *wire.Batch {
		b := wire.NewBatch(func(profile.Hash) bool { return true })
		for _, i := range instances {
			if err := b.Add(wire.Seal(summable(i, at), profile.Run{byte(i)})); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	sumOf := func(pushes ...*wire.Batch) (samples int64, left int) {
		s := newSums([]string{"service"}, true, nil, nil)
		for _, b := range pushes {
			rest, _ := s.add(pushed(b))
			left += len(rest.GetWindows())
		}
		request, _, _ := s.request()
		for _, w := range request.GetWindows() {
			for _, n := range w.GetRows().GetN() {
				samples += n
			}
		}
		return samples, left
	}
	addedUp := func(instances ...int) *wire.Batch { return added(t, push(instances...)) }
	want, _ := sumOf(push(0, 1))
	for name, pushes := range map[string][]*wire.Batch{
		"by themselves": {push(0), push(0, 1), push(1)},
		"added up":      {addedUp(0, 1), addedUp(0, 1)},
		"both":          {addedUp(0, 1), push(1)},
	} {
		if got, left := sumOf(pushes...); got != want || left != 0 {
			t.Errorf("%s: %d samples and %d windows left, want %d and none", name, got, left, want)
		}
	}
	one, _ := sumOf(push(1))
	if got, left := sumOf(push(1), addedUp(0, 1)); got != one || left != 1 {
		t.Errorf("a part, then all: %d samples and %d windows left, want %d and one", got, left, one)
	}
}

// added adds up windows, as a relay sends them on.
func added(t *testing.T, pushes ...*wire.Batch) *wire.Batch {
	t.Helper()
	s := newSums([]string{"service"}, true, nil, nil)
	for _, b := range pushes {
		if rest, _ := s.add(pushed(b)); len(rest.GetWindows()) > 0 {
			t.Fatalf("%d windows are not added up", len(rest.GetWindows()))
		}
	}
	request, hashes, _ := s.request()
	sum := wire.NewBatch(func(profile.Hash) bool { return true })
	sum.Join(request, hashes, func(profile.Hash) (*profile.Forest, int, bool) { return nil, 0, false })
	return sum
}

// TestSumsOfKinds adds up two kinds of one task, run and second: neither is taken for the other
// that came again.
func TestSumsOfKinds(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	cpu, faults := summable(0, at), summable(0, at)
	faults.Types[0] = profile.ValueType{Kind: "page-faults", Unit: "count"}
	b := wire.NewBatch(func(profile.Hash) bool { return true })
	for _, w := range []*profile.Window{cpu, faults} {
		if err := b.Add(wire.Seal(w, profile.Run{1})); err != nil {
			t.Fatal(err)
		}
	}
	s := newSums([]string{"service"}, true, nil, nil)
	rest, _ := s.add(pushed(b))
	request, _, _ := s.request()
	if n := len(rest.GetWindows()) + len(request.GetWindows()); n != 2 {
		t.Errorf("%d windows go on, want 2", n)
	}
}

// TestSumsOfOneSecond adds up windows of agents that cut at one edge, each some
// moments after it: they are one window, whatever came first and however many relays
// they pass, and each is named by its own start. One of the next second is another's.
func TestSumsOfOneSecond(t *testing.T) {
	edge := time.Unix(1_700_000_000, 0)
	late := []time.Duration{3_965_375, 1_389_794, 1_389_794, 999 * time.Millisecond, time.Second}
	var pushes []*wire.Batch
	for i, by := range late {
		b := wire.NewBatch(func(profile.Hash) bool { return true })
		if err := b.Add(wire.Seal(summable(i, edge.Add(by)), profile.Run{byte(i)})); err != nil {
			t.Fatal(err)
		}
		pushes = append(pushes, b)
	}
	want := []time.Duration{1_389_794, time.Second}
	check := func(name string, windows []*atysv1.Window) {
		t.Helper()
		if len(windows) != 2 {
			t.Fatalf("%s: %d windows, want two", name, len(windows))
		}
		slices.SortFunc(windows, func(a, b *atysv1.Window) int { return cmp.Compare(a.GetStartUnixNano(), b.GetStartUnixNano()) })
		for i, w := range windows {
			if start := time.Unix(0, w.GetStartUnixNano()); !start.Equal(edge.Add(want[i])) {
				t.Errorf("%s: window %d begins at %v", name, i, start)
			}
			for _, c := range w.GetContains() {
				if start, own := time.Unix(0, w.GetStartUnixNano()+c.GetAfterNs()), edge.Add(late[c.GetRun()[0]]); !start.Equal(own) {
					t.Errorf("%s: window %d of an agent is said to begin at %v, and did at %v", name, c.GetRun()[0], start, own)
				}
			}
		}
		first, second := windows[0], windows[1]
		if len(first.GetContains()) != 4 || len(second.GetContains()) != 1 || first.GetDurationNs() != int64(10*time.Second+999*time.Millisecond-1_389_794) {
			t.Errorf("%s: %d and %d windows are contained, the first lasts %v", name, len(first.GetContains()), len(second.GetContains()), time.Duration(first.GetDurationNs()))
		}
	}
	once := added(t, pushes...).Request()
	check("once", once.GetWindows())
	slices.Reverse(pushes)
	twice := added(t, added(t, pushes[:2]...), added(t, pushes[2:]...)).Request()
	check("twice", twice.GetWindows())
	for i, w := range once.GetWindows() {
		if !bytes.Equal(w.GetRun(), twice.GetWindows()[i].GetRun()) {
			t.Errorf("window %d is another one behind two relays", i)
		}
	}
}

// TestSumsOfClocks adds up windows of one time, of which one agent's clock is an
// hour ahead: they are one window, and each of them is at the time that a server
// gives it.
func TestSumsOfClocks(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	b := wire.NewBatch(func(profile.Hash) bool { return true })
	for i, offset := range []time.Duration{0, time.Hour + 2*time.Millisecond} {
		w := summable(i, at.Add(offset.Round(time.Second)+time.Duration(i)*time.Millisecond))
		w.ClockOffset, w.ClockError = offset, time.Millisecond
		if err := b.Add(wire.Seal(w, profile.Run{byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	s := newSums([]string{"service"}, true, nil, nil)
	rest, _ := s.add(pushed(b))
	request, _, _ := s.request()
	if len(rest.GetWindows()) != 0 || len(request.GetWindows()) != 1 || len(request.GetWindows()[0].GetContains()) != 2 {
		t.Fatalf("%d windows are left, %d are sums", len(rest.GetWindows()), len(request.GetWindows()))
	}
	h, _, err := wire.Head(request.GetWindows()[0])
	if err != nil || !h.Start.Equal(at) || wire.SetRight(&h) != 0 || h.Instances != (profile.Instances{Recorded: 2, Eligible: 5}) {
		t.Errorf("%v: %+v", err, h)
	}
	for i, c := range request.GetWindows()[0].GetContains() {
		if got := time.Duration(c.GetAfterNs()); got != time.Duration(i)*time.Millisecond {
			t.Errorf("window %d begins %v after both", i, got)
		}
	}
}
