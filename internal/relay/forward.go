package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// patience is how long windows may take from their arrival to the server's answer.
// Agents wait a little longer, half a minute: who has given up sends again what is
// kept.
const patience = 25 * time.Second

// trips is how often a group is sent: what the server does not know is explained
// to it once, and what it has already is left out, of which it may find more.
const trips = 5

// trip is a group on its way to the server.
type trip struct {
	group   []*push
	explain wire.Explain  // what any of the group explains
	without map[part]bool // windows that the server has already
	origins []origin      // of the windows of the request, in their order
	refused map[origin]*atysv1.Refused
	records map[*push]records // of those whose records the server has answered for
	sent    []sentRecord      // the records of the request, in their order
	divided bool              // the request has sums that an earlier server would refuse
	apart   bool              // it is to have none: the server has refused such a request
}

// origin is where a window of a request comes from: it was added up, or is one
// of a push.
type origin struct {
	sum    *sum
	push   *push
	window int
}

// forward passes a group on, and tells each of it how that ended. What the
// server wants to know, or has already, and nobody but the sender can tell or
// take apart, its sender is told of.
func (r *Relay) forward(ctx context.Context, group []*push) {
	ctx, cancel := context.WithTimeout(ctx, patience-r.options.Gather) // for which the first of them has waited
	defer cancel()
	t := &trip{group: group, explain: together(group), without: map[part]bool{}, refused: map[origin]*atysv1.Refused{}, records: map[*push]records{}}
	for range trips {
		response, err := r.send(ctx, t)
		switch {
		case remote.Refuses(err) && t.divided:
			if connect.CodeOf(err) == connect.CodeInvalidArgument { // the server may have been downgraded: its next answer says whether
				r.takes(false)
			}
			t.apart = true
			continue
		case remote.Refuses(err) && len(t.group) > 1: // for one of them: the others are not to suffer
			for _, p := range t.group {
				r.forward(ctx, []*push{p})
			}
			return
		case err != nil:
			answer(t.group, outcome{err: err})
			return
		}
		t.noteRecords(response)
		if len(response.GetUnknown())+len(response.GetOverlaps()) == 0 && !t.refuse(response.GetRefused()) {
			t.kept()
			return
		}
		t.overlapped(response.GetOverlaps())
		if err := t.askBack(response.GetUnknown()); err != nil {
			answer(t.group, outcome{err: err})
			return
		}
		if len(t.group) == 0 {
			return
		}
	}
	answer(t.group, outcome{err: connect.NewError(connect.CodeUnavailable, errors.New("the server goes on asking what it was just told"))})
}

// send passes a group on once, and reads the server's clock on the way.
func (r *Relay) send(ctx context.Context, t *trip) (*atysv1.PushResponse, error) {
	b := r.batch(t)
	if b.Len()+len(t.sent) == 0 {
		return &atysv1.PushResponse{}, nil // the server has it all
	}
	sent := r.now()
	request := b.Request()
	request.Partly = true
	request.IfUnknown = !slices.ContainsFunc(t.group, func(p *push) bool { return !p.request.GetIfUnknown() })
	response, err := r.options.Upstream.Push(ctx, request)
	r.metrics.forwarded(err)
	if err != nil {
		r.log.Warn("pass windows on", "windows", b.Len(), "error", err)
		return nil, asOurs(err)
	}
	unknown, err := wire.Hashes(response.GetUnknown())
	if err != nil {
		return nil, senseless(err)
	}
	r.takes(response.GetTakesDivided())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compare(sent, response)
	if len(unknown) > 0 {
		r.known.Forget(unknown)
	} else if len(response.GetOverlaps()) == 0 {
		r.known.Add(b.Hashes())
	}
	return response, nil
}

// takes remembers whether the server takes sums of several types, contexts, peers and exemplars.
func (r *Relay) takes(divided bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.divided = divided
}

// batch puts the windows of a group together, added up as far as that is asked for.
func (r *Relay) batch(t *trip) *wire.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := wire.NewBatch(r.known.Has)
	t.origins = t.origins[:0]
	added := newSums(r.options.Keep, r.divided && !t.apart, t.without, t.out())
	for _, p := range t.group {
		var rest *atysv1.PushRequest
		var windows []int
		if len(r.options.Keep) > 0 {
			rest, windows = added.add(p)
		} else {
			rest, windows = t.left(p)
		}
		for _, i := range windows {
			t.origins = append(t.origins, origin{push: p, window: i})
		}
		b.Join(rest, p.hashes, t.explain)
	}
	t.divided = added.needed
	request, hashes, windows := added.request()
	for _, s := range windows {
		t.origins = append(t.origins, origin{sum: s})
	}
	b.Join(request, hashes, t.explain)
	t.addRecords(b)
	return b
}

// left gives a request without what the server refuses of it, and where the rest
// was in it.
func (t *trip) left(p *push) (rest *atysv1.PushRequest, windows []int) {
	rest = &atysv1.PushRequest{Series: p.request.GetSeries()}
	for i, w := range p.request.GetWindows() {
		if t.refused[origin{push: p, window: i}] == nil {
			rest.Windows, windows = append(rest.Windows, w), append(windows, i)
		}
	}
	return rest, windows
}

// out is what the server refuses.
func (t *trip) out() map[origin]bool {
	out := map[origin]bool{}
	for from := range t.refused {
		out[from] = true
	}
	return out
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

// overlapped leaves out what the server has already. Windows that another relay
// has added up only that one can take apart: it is told.
func (t *trip) overlapped(overlaps []*atysv1.Overlap) {
	told := map[*push][]*atysv1.Overlap{}
	for _, o := range overlaps {
		if int64(o.GetWindow()) >= int64(len(t.origins)) {
			continue // the server makes no sense; it will be asked once more
		}
		from := t.origins[o.GetWindow()]
		if from.sum == nil {
			told[from.push] = append(told[from.push], &atysv1.Overlap{Window: uint32(from.window), Parts: o.GetParts()})
			continue
		}
		for _, at := range o.GetParts() {
			if int64(at) < int64(len(from.sum.parts)) {
				t.without[from.sum.parts[at]] = true
			}
		}
	}
	for p, all := range told {
		p.done <- outcome{overlaps: all}
	}
	t.group = slices.DeleteFunc(t.group, func(p *push) bool { return told[p] != nil })
}

// refuse notes what the server refuses for good, and tells whether to send the rest
// again: it cannot take sums apart, and has kept all else.
func (t *trip) refuse(refused []*atysv1.Refused) (again bool) {
	for _, one := range refused {
		if int64(one.GetWindow()) >= int64(len(t.origins)) {
			continue // the server makes no sense
		}
		from := t.origins[one.GetWindow()]
		if from.sum == nil {
			t.refused[from] = &atysv1.Refused{Window: uint32(from.window), Parts: one.GetParts(), Why: one.GetWhy()}
			continue
		}
		again = again || len(one.GetParts()) > 0
		for i, sources := range from.sum.from {
			if len(one.GetParts()) == 0 || slices.Contains(one.GetParts(), uint32(i)) {
				t.refuseParts(sources, len(one.GetParts()) > 0, one.GetWhy())
			}
		}
	}
	return again
}

// refuseParts notes a part of a sum, as it came. What another relay has added up only
// that one can take apart: it is told which part of it is refused, unless all of the
// sum is.
func (t *trip) refuseParts(sources []source, some bool, why string) {
	for _, from := range sources {
		is := t.refused[from.origin]
		if is == nil {
			is = &atysv1.Refused{Window: uint32(from.window), Why: why}
			t.refused[from.origin] = is
		}
		if some && len(from.push.request.GetWindows()[from.window].GetContains()) > 0 {
			is.Parts = append(is.Parts, uint32(from.part))
		}
	}
}

// kept tells all of a group that their windows are, but for those that are refused.
func (t *trip) kept() {
	for _, p := range t.group {
		o := outcome{records: t.recordsOf(p)}
		for i := range p.request.GetWindows() {
			if one := t.refused[origin{push: p, window: i}]; one != nil {
				o.refused = append(o.refused, one)
			}
		}
		p.done <- o
	}
}

// askBack tells those whose stacks nobody has explained what is to be.
func (t *trip) askBack(table []byte) error {
	unknown, err := wire.Hashes(table)
	if err != nil {
		return senseless(err)
	}
	missing := map[profile.Hash]bool{}
	for _, h := range unknown {
		if _, _, ok := t.explain(h); !ok {
			missing[h] = true
		}
	}
	t.group = slices.DeleteFunc(t.group, func(p *push) bool {
		ask := slices.DeleteFunc(slices.Clone(p.hashes), func(h profile.Hash) bool { return !missing[h] })
		if len(ask) > 0 {
			p.done <- outcome{unknown: ask}
		}
		return len(ask) > 0
	})
	return nil
}

// asOurs is an error of the server as its agent is to see it: what is wrong
// with this relay is not wrong with the agent.
func asOurs(err error) error {
	message := err.Error()
	var answered *connect.Error
	if errors.As(err, &answered) {
		message = answered.Message()
	}
	if remote.Refuses(err) {
		return connect.NewError(connect.CodeOf(err), errors.New(message))
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("this relay's server took nothing: %s", message))
}

func senseless(err error) error {
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the server answers what makes no sense: %w", err))
}
