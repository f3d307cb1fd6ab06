package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// picky is a server that has no room for some instances, and notes those of which it
// keeps windows.
type picky struct {
	*keeper
	mu    sync.Mutex // guards kept
	kept  map[string]bool
	older bool // it does not name what it refuses
}

func (p *picky) refuses(labels map[string]string) bool {
	return strings.HasPrefix(labels["instance"], "new")
}

func (p *picky) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := p.keeper.Push(ctx, r)
	if err != nil || len(response.GetUnknown()) > 0 {
		return response, err
	}
	kept := map[string]bool{}
	for i, w := range r.GetWindows() {
		instances, refused := []string{r.GetSeries()[w.GetSeries()].GetLabels()["instance"]}, &atysv1.Refused{Window: uint32(i), Why: "no more series"}
		if len(w.GetContains()) > 0 {
			instances = nil
		}
		for n, c := range w.GetContains() {
			labels := r.GetSeries()[c.GetSeries()].GetLabels()
			if instances = append(instances, labels["instance"]); p.refuses(labels) {
				refused.Parts = append(refused.Parts, uint32(n))
			}
		}
		if len(refused.GetParts()) > 0 || p.refuses(r.GetSeries()[w.GetSeries()].GetLabels()) {
			response.Refused = append(response.Refused, refused)
			continue
		}
		for _, one := range instances {
			kept[one] = true
		}
	}
	if len(response.GetRefused()) > 0 && (p.older || !r.GetPartly()) {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("no more series"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.kept, kept)
	return response, nil
}

// offered ships windows of instances together, as an agent does, and tells which of
// them are refused.
func offered(to pusher, partly bool, instances []string) (refused []string, err error) {
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	for i, instance := range instances {
		w := summable(i, time.Unix(1_700_000_000, 0))
		w.Target["instance"] = instance
		if err := b.Add(wire.Seal(w, profile.Run{byte(i)})); err != nil {
			return nil, err
		}
	}
	request := b.Request()
	request.Partly = partly
	response, err := to.Push(context.Background(), request)
	if err != nil {
		return nil, err
	}
	if len(response.GetUnknown())+len(response.GetOverlaps()) > 0 {
		return nil, fmt.Errorf("not taken: %v", response)
	}
	for _, one := range response.GetRefused() {
		if refused = append(refused, instances[one.GetWindow()]); len(one.GetParts()) > 0 {
			return nil, fmt.Errorf("an agent is told of parts: %v", one)
		}
	}
	return refused, nil
}

// TestRefusedAlone has a server refuse some windows of what many agents ship, as they
// are or added up, on one or several levels: their agents are told which, once, and
// all others are kept.
func TestRefusedAlone(t *testing.T) {
	agents := [][]string{{"a", "new-1", "b"}, {"c", "d"}, {"new-2"}, {"e", "new-3", "new-4", "f"}}
	for levels := 1; levels <= 3; levels++ {
		for _, keep := range [][]string{nil, {"service"}} {
			for _, manner := range []string{"all know", "an older agent", "an older server"} {
				server := &picky{keeper: newKeeper(), kept: map[string]bool{}, older: manner == "an older server"}
				var to Upstream = server
				for range levels {
					to = relayed{beganAs(t, Options{Upstream: to, Gather: 20 * time.Millisecond, Keep: keep})}
				}
				var all sync.WaitGroup
				for n, instances := range agents {
					all.Go(func() {
						older := manner == "an older server" || manner == "an older agent" && n == 0
						want := slices.DeleteFunc(slices.Clone(instances), func(one string) bool { return !strings.HasPrefix(one, "new") })
						got, err := offered(to, !(manner == "an older agent" && n == 0), instances)
						if older && len(want) > 0 {
							if code := connect.CodeOf(err); code != connect.CodeInvalidArgument && code != connect.CodeResourceExhausted {
								t.Errorf("%d levels, %v, %s: %v, %v, want all refused", levels, keep, manner, got, err)
							}
						} else if err != nil || !slices.Equal(got, want) {
							t.Errorf("%d levels, %v, %s: of %v are refused %v, %v, want %v", levels, keep, manner, instances, got, err, want)
						}
					})
				}
				all.Wait()
				want := "a b c d e f"
				if manner == "an older server" {
					want = "c d" // the others are for their agents to send without what is refused
				}
				if got := strings.Join(slices.Sorted(maps.Keys(server.kept)), " "); got != want {
					t.Errorf("%d levels, %v, %s: kept are %s, want %s", levels, keep, manner, got, want)
				}
			}
		}
	}
}
