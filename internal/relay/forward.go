package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
)

// patience is how long the server may take. Agents wait a little longer.
const patience = 25 * time.Second

// forward passes a group on, and tells each of it how that ended. If the server
// does not know some stacks, it is told of them; what nobody in the group has
// explained its agent is asked for.
func (r *Relay) forward(ctx context.Context, group []*push) {
	explain := together(group)
	for range 2 {
		unknown, err := r.send(ctx, group, explain)
		switch {
		case refused(err) && len(group) > 1: // for one of them: the others are not to suffer
			for _, p := range group {
				r.forward(ctx, []*push{p})
			}
			return
		case err != nil || len(unknown) == 0:
			answer(group, outcome{err: err})
			return
		}
		if group = askBack(group, unknown, explain); len(group) == 0 {
			return
		}
	}
	answer(group, outcome{err: connect.NewError(connect.CodeUnavailable, errors.New("the server does not know stacks that were just explained to it"))})
}

// send passes a group on once, and reads the server's clock on the way.
func (r *Relay) send(ctx context.Context, group []*push, explain wire.Explain) (unknown []profile.Hash, err error) {
	b := r.batch(group, explain)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent := r.options.Now()
	response, err := r.options.Upstream.Push(ctx, b.Request())
	r.metrics.forwarded(err)
	if err != nil {
		r.log.Warn("pass windows on", "windows", b.Len(), "error", err)
		return nil, asOurs(err)
	}
	if unknown, err = wire.Hashes(response.GetUnknown()); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("the server answers what makes no sense: %w", err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offset, r.uncertain = wire.Clock(sent, r.options.Now(), response)
	if len(unknown) > 0 {
		r.known.Forget(unknown)
	} else {
		r.known.Add(b.Hashes())
	}
	return unknown, nil
}

func (r *Relay) batch(group []*push, explain wire.Explain) *wire.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := wire.NewBatch(r.known.Has)
	for _, p := range group {
		b.Join(p.request, p.hashes, explain)
	}
	return b
}

// together explains what any of a group explains.
func together(group []*push) wire.Explain {
	type place struct {
		forest *profile.Forest
		leaf   int
	}
	index := map[profile.Hash]place{}
	for _, p := range group {
		for i := range p.forest.Calls {
			index[p.forest.Calls[i].Hash] = place{p.forest, i}
		}
	}
	return func(h profile.Hash) (*profile.Forest, int, bool) {
		p, ok := index[h]
		return p.forest, p.leaf, ok
	}
}

// askBack answers those whose stacks nobody has explained with what is to be,
// and gives the others.
func askBack(group []*push, unknown []profile.Hash, explain wire.Explain) (rest []*push) {
	missing := map[profile.Hash]bool{}
	for _, h := range unknown {
		if _, _, ok := explain(h); !ok {
			missing[h] = true
		}
	}
	for _, p := range group {
		var ask []profile.Hash
		for _, h := range p.hashes {
			if missing[h] {
				ask = append(ask, h)
			}
		}
		if len(ask) > 0 {
			p.done <- outcome{unknown: ask}
		} else {
			rest = append(rest, p)
		}
	}
	return rest
}

// refused tells whether the server will never take a request as it is.
func refused(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeInvalidArgument || code == connect.CodeResourceExhausted)
}

// asOurs is an error of the server as its agent is to see it: what is wrong
// with this relay is not wrong with the agent.
func asOurs(err error) error {
	message := err.Error()
	var answered *connect.Error
	if errors.As(err, &answered) {
		message = answered.Message()
	}
	if refused(err) {
		return connect.NewError(connect.CodeOf(err), errors.New(message))
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("this relay's server took nothing: %s", message))
}
