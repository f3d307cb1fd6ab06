package levels

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/relay"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

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
	response, err := f.intake.Push(ctx, sent(r))
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
	server *server.Server
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
	f.server, f.levels = s, []intake{s}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i, keep := range levels {
		to := &flaky{intake: f.levels[0], r: rand.New(rand.NewPCG(seed, uint64(i)))}
		r := relay.New(relay.Options{Offer: &atysv1.OfferRequest{Name: fmt.Sprint("level-", i), Address: "http://here"},
			Upstream: upstream{to, s}, Gather: 5 * time.Millisecond, Keep: keep})
		running.Go(func() { r.Run(ctx) })
		f.levels = append([]intake{r}, f.levels...)
	}
	return f
}

// wireWindow is a window as it waits to be sent.
type wireWindow = atysv1.Spooled

// ship sends windows until they are taken, to one intake and, where that failed, to any other
// one: they may come twice.
func (f *fleet) ship(seed uint64, windows ...*wireWindow) error {
	r := rand.New(rand.NewPCG(seed, 7))
	to, known := f.levels[0], r.IntN(2) == 0
	for range 200 {
		b := wire.NewBatch(func(profile.Hash) bool { return known })
		for _, w := range windows {
			if err := b.Add(w); err != nil {
				return err
			}
		}
		response, err := to.Push(context.Background(), sent(b.Request()))
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

// sent is a request as it arrives.
func sent(r *atysv1.PushRequest) *atysv1.PushRequest {
	data, err := proto.Marshal(r)
	arrived := &atysv1.PushRequest{}
	if err = errors.Join(err, proto.Unmarshal(data, arrived)); err != nil {
		panic(err)
	}
	return arrived
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
