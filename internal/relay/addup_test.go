package relay

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
)

// TestSumsOfClocks adds up windows of one time, of which one agent's clock is an
// hour ahead: they are one window, at the time that a server gives each of them.
func TestSumsOfClocks(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	b := wire.NewBatch(func(profile.Hash) bool { return true })
	for i, offset := range []time.Duration{0, time.Hour + 2*time.Millisecond} {
		w := storetest.Window(uint64(i), "shop", string(rune('a'+i)), at.Add(offset.Round(time.Second)))
		w.Types, w.Task, w.Duration, w.ClockOffset, w.ClockError = w.Types[:1], "t", 10*time.Second, offset, time.Millisecond
		w.Design, w.Threads, w.Contexts = profile.DesignRandomised, nil, nil
		w.Instances = profile.Instances{Recorded: 2, Eligible: 5}
		w.Types[0].Period = 1
		for r := range w.Rows {
			w.Rows[r].Thread, w.Rows[r].Context, w.Rows[r].Values = 0, 0, w.Rows[r].Values[:1]
		}
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
