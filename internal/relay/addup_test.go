package relay

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
)

// summable is a window of an instance that relays can add up.
func summable(instance int, at time.Time) *profile.Window {
	w := storetest.Window(uint64(instance), "shop", string(rune('a'+instance)), at)
	w.Types, w.Task, w.Duration = w.Types[:1], "t", 10*time.Second
	w.Design, w.Threads, w.Contexts = profile.DesignRandomised, nil, nil
	w.Instances = profile.Instances{Recorded: 2, Eligible: 5}
	w.Types[0].Period = 1
	for r := range w.Rows {
		w.Rows[r].Thread, w.Rows[r].Context, w.Rows[r].Values = 0, 0, w.Rows[r].Values[:1]
	}
	return w
}

// TestSentAgain has windows come twice before they are passed on, by themselves
// and added up: each counts once, and what cannot be told apart goes on as it is.
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
		s := newSums([]string{"service"}, nil)
		for _, b := range pushes {
			rest, _ := s.add(b.Request(), b.Hashes())
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
	addedUp := func(instances ...int) *wire.Batch {
		b := push(instances...)
		s := newSums([]string{"service"}, nil)
		s.add(b.Request(), b.Hashes())
		request, hashes, _ := s.request()
		sum := wire.NewBatch(func(profile.Hash) bool { return true })
		sum.Join(request, hashes, func(profile.Hash) (*profile.Forest, int, bool) { return nil, 0, false })
		return sum
	}
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

// TestSumsOfClocks adds up windows of one time, of which one agent's clock is an
// hour ahead: they are one window, at the time that a server gives each of them.
func TestSumsOfClocks(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	b := wire.NewBatch(func(profile.Hash) bool { return true })
	for i, offset := range []time.Duration{0, time.Hour + 2*time.Millisecond} {
		w := summable(i, at.Add(offset.Round(time.Second)))
		w.ClockOffset, w.ClockError = offset, time.Millisecond
		if err := b.Add(wire.Seal(w, profile.Run{byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	s := newSums([]string{"service"}, nil)
	rest, _ := s.add(b.Request(), b.Hashes())
	request, _, _ := s.request()
	if len(rest.GetWindows()) != 0 || len(request.GetWindows()) != 1 || len(request.GetWindows()[0].GetContains()) != 2 {
		t.Fatalf("%d windows are left, %d are sums", len(rest.GetWindows()), len(request.GetWindows()))
	}
	h, _, err := wire.Head(request.GetWindows()[0])
	if err != nil || !h.Start.Equal(at) || wire.SetRight(&h) != 0 || h.Instances != (profile.Instances{Recorded: 2, Eligible: 5}) {
		t.Errorf("%v: %+v", err, h)
	}
}
