package levels

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/relay"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

var begin = time.Now().Add(-10 * time.Minute).Truncate(time.Minute)

// intake is who takes windows: a server, or a relay of it.
type intake interface {
	Push(context.Context, *atysv1.PushRequest) (*atysv1.PushResponse, error)
}

// upstream is an intake as a relay sees it.
type upstream struct {
	intake
	*server.Server
}

func (u upstream) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	return u.intake.Push(ctx, r)
}

// flaky loses answers, so that windows come again.
type flaky struct {
	intake
	mu sync.Mutex // guards r
	r  *rand.Rand
}

func (f *flaky) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := f.intake.Push(ctx, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r.IntN(4) == 0 {
		return nil, errors.New("the answer is lost")
	}
	return response, err
}

// level is a relay that adds up under the labels that it keeps; none: it does not.
type level []string

// fleet is a server with relays before it, the farthest first.
type fleet struct {
	store  store.Store
	levels []intake // the server is the last
}

// engines are what a server keeps windows in.
var engines = map[string]func(t *testing.T, seed uint64) store.Store{
	"mem": func(_ *testing.T, seed uint64) store.Store { return mem.New(seed) },
	"disk": func(t *testing.T, _ uint64) store.Store {
		s, err := disk.Open(disk.Options{Dir: t.TempDir(), Reserve: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	},
}

func start(t *testing.T, kept store.Store, seed uint64, levels ...level) *fleet {
	t.Helper()
	f := &fleet{store: kept}
	s, err := server.New(server.Options{Store: f.store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	f.levels = []intake{s}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i, keep := range levels {
		to := &flaky{intake: f.levels[0], r: rand.New(rand.NewPCG(seed, uint64(i)))}
		r := relay.New(relay.Options{Offer: &atysv1.OfferRequest{Name: fmt.Sprint("level-", i), Address: "http://here"},
			Upstream: upstream{to, s}, Gather: 20 * time.Millisecond, Keep: keep})
		running.Go(func() { r.Run(ctx) })
		f.levels = append([]intake{r}, f.levels...)
	}
	return f
}

// ship sends a window until it is taken, to one intake and, where that failed, to
// any other one: it may come twice.
func (f *fleet) ship(seed uint64, w *atysv1.Spooled) error {
	r := rand.New(rand.NewPCG(seed, 7))
	to, known := f.levels[0], r.IntN(2) == 0
	for range 200 {
		b := wire.NewBatch(func(profile.Hash) bool { return known })
		if err := b.Add(w); err != nil {
			return err
		}
		response, err := to.Push(context.Background(), b.Request())
		switch {
		case err != nil:
			to = f.levels[r.IntN(len(f.levels))]
			time.Sleep(time.Millisecond)
		case len(response.GetOverlaps()) > 0:
			return errors.New("an agent is told of an overlap")
		case len(response.GetUnknown()) > 0:
			known = false
		default:
			return nil
		}
	}
	return errors.New("not taken")
}

// windows are those of some instances of two services, at two times, of one kind
// each but for some, and those of their machines. As real ones they begin some
// moments after the edge that they are cut at, each at another one; some are of
// agents whose clock is an hour ahead.
func windows(seed uint64) (all []*profile.Window) {
	r := rand.New(rand.NewPCG(seed, 9))
	for i := range uint64(24) {
		late := time.Duration(r.IntN(20_000_000)) * time.Nanosecond
		w := storetest.Window(seed*100+i, []string{"shop", "cart"}[i%2], fmt.Sprint("instance-", i/4), begin.Add(time.Duration(i/2%2)*10*time.Second+late))
		w.Types[0].Period = 1
		if i/4%3 == 1 {
			w.Start, w.ClockOffset, w.ClockError = w.Start.Add(time.Hour), time.Hour+2*time.Millisecond, time.Millisecond
		}
		w.Target["zone"] = fmt.Sprint("zone-", i/8)
		if i%7 == 0 {
			delete(w.Target, store.ServiceLabel)
		}
		if i%5 > 0 {
			w.Types = w.Types[:1]
			w.Rows = w.Rows.Only(0)
		}
		all = append(all, w)
	}
	return all
}

// TestLevels has what a server answers not depend on how many relays are before
// it, what they add up, nor what comes twice on which way.
func TestLevels(t *testing.T) {
	for seed := range uint64(6) {
		all := windows(seed)
		direct := shipped(t, mem.New(seed), seed, all)
		for name, levels := range map[string][]level{
			"forwarded":             {nil},
			"forwarded twice":       {nil, nil},
			"added up":              {{"service"}},
			"by zone":               {{"service", "zone"}},
			"by zone, then all":     {{"service"}, {"service", "zone"}},
			"added up, forwarded":   {nil, {"service"}},
			"forwarded, added up":   {{"service"}, nil},
			"three levels, all add": {{"service"}, {"service", "zone"}, {"service", "zone", "instance"}},
		} {
			for engine, open := range engines {
				if engine == "disk" && seed >= 2 { // it takes its time
					continue
				}
				t.Run(fmt.Sprint(name, " ", engine, " ", seed), func(t *testing.T) {
					through := shipped(t, open(t, seed), seed, all, levels...)
					for level, want := range direct {
						same(t, level, through[level], want)
					}
				})
			}
		}
	}
}

// shipped ships windows through levels, and gives what the store has at each of
// its own levels.
func shipped(t *testing.T, kept store.Store, seed uint64, all []*profile.Window, levels ...level) map[store.Level]map[string]*store.Column {
	t.Helper()
	f := start(t, kept, seed, levels...)
	var agents sync.WaitGroup
	for i, w := range all {
		agents.Go(func() {
			if err := f.ship(seed*1000+uint64(i), wire.Seal(w, profile.Run{1})); err != nil {
				t.Error(err)
			}
		})
	}
	agents.Wait()
	if late, ok := kept.(*mem.Store); ok {
		late.Settle()
	}
	roll(t, f.store)
	answers := map[store.Level]map[string]*store.Column{}
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		answers[level] = merged(t, f.store, level)
	}
	return answers
}

func roll(t *testing.T, s store.Store) {
	t.Helper()
	for {
		stale, err := s.Stale(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		if len(stale) == 0 {
			return
		}
		for _, step := range stale {
			if err := s.Roll(t.Context(), "default", step); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// merged is what a level has of each service and kind, its stacks by their hashes.
func merged(t *testing.T, s store.Store, level store.Level) map[string]*store.Column {
	t.Helper()
	all := map[string]*store.Column{}
	for _, kind := range []string{"cpu", "page-faults"} {
		q := store.Query{Level: level, From: begin.Truncate(24 * time.Hour), To: begin.Add(time.Hour)}
		m, err := s.Merge(t.Context(), "default", storetest.Of(kind, q), store.Grouping{By: []store.Dimension{store.ByLabel(store.ServiceLabel)}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Columns {
			c := &m.Columns[i]
			all[kind+" of "+c.By[0]] = c
			for at := range c.Sums {
				all[fmt.Sprintf("%s of %s, %x", kind, c.By[0], m.Forest.Calls[c.Sums[at].Call].Hash)] = &store.Column{Sums: c.Sums[at : at+1]}
			}
		}
	}
	return all
}

// rounded is by how much squares may differ: engines keep them within a quarter, of
// what was put and again of what that was added up to.
const rounded = 1 - 0.75*0.75

func same(t *testing.T, level store.Level, got, want map[string]*store.Column) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Errorf("%v: %d columns and stacks, want %d", level, len(got), len(want))
	}
	for key, w := range want {
		g := got[key]
		if g == nil {
			t.Errorf("%v: %s is missing", level, key)
			continue
		}
		if len(w.Sums) == 1 && w.Windows == 0 {
			a, b := g.Sums[0], w.Sums[0]
			if a.N != b.N || a.Value != b.Value || a.Groups != b.Groups || math.Abs(a.Squares-b.Squares) > rounded*b.Squares+1 {
				t.Errorf("%v: %s: %+v, want %+v", level, key, a, b)
			}
			continue
		}
		if g.Windows != w.Windows || g.Head.Exact != w.Head.Exact || g.Head.Idle != w.Head.Idle || g.Head.Watched != w.Head.Watched {
			t.Errorf("%v: %s: head %+v of %d windows, want %+v of %d", level, key, g.Head, g.Windows, w.Head, w.Windows)
		}
		for _, l := range w.Head.Losses {
			if g.Head.LossOf(l.Reason) != w.Head.LossOf(l.Reason) {
				t.Errorf("%v: %s: lost %+v, want %+v", level, key, g.Head.LossOf(l.Reason), w.Head.LossOf(l.Reason))
			}
		}
	}
}
