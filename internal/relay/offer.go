package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire/atysv1"
)

// offer has the server know of this relay until the context ends.
func (r *Relay) offer(ctx context.Context) {
	remote.Stand(ctx, func(ctx context.Context, heard func()) error {
		return r.options.Upstream.OfferTo(ctx, r.options.Offer, func(s *atysv1.Standing) error {
			heard()
			if err := r.stand(s); err != nil {
				return err
			}
			return r.answer(ctx, s)
		})
	}, func(failures int, err error) { r.log.Warn("offer this relay", "failures", failures, "error", err) })
}

// stand notes how the server has this relay stand. Of the tenant there is one
// for good: windows that are held are its.
func (r *Relay) stand(s *atysv1.Standing) error {
	if s.GetTenant() == "" {
		return errors.New("the server does not say whose windows this relay may pass on")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing != nil && r.standing.GetTenant() != s.GetTenant() {
		return fmt.Errorf("this relay was of tenant %q, and is to be of %q: start it again", r.standing.GetTenant(), s.GetTenant())
	}
	if was := r.standing; was == nil || was.GetGroup() != s.GetGroup() || was.GetCentral() != s.GetCentral() {
		r.log.Info("stand", "tenant", s.GetTenant(), "group", s.GetGroup(), "central", s.GetCentral())
	}
	r.standing = s
	return nil
}

// answer says that this relay is there. If the server knows it no more, the
// connection is of no use; if the answer does not get through, it is for the server
// to say.
func (r *Relay) answer(ctx context.Context, s *atysv1.Standing) error {
	if len(s.GetOffer()) == 0 {
		return nil
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.options.Upstream.Stand(ctx, &atysv1.StandRequest{Offer: s.GetOffer()})
	if connect.CodeOf(err) == connect.CodeNotFound {
		return err
	}
	if err != nil {
		r.log.Debug("say that this relay is there", "error", err)
	}
	return nil
}
