package relay

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire/atysv1"
)

// offer has the server know of this relay until the context ends.
func (r *Relay) offer(ctx context.Context) {
	remote.Stand(ctx, func(ctx context.Context, heard func()) error {
		return r.options.Upstream.OfferTo(ctx, r.options.Offer, func(s *atysv1.Standing) error {
			heard()
			return r.stand(s)
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
	if !proto.Equal(r.standing, s) {
		r.log.Info("stand", "tenant", s.GetTenant(), "group", s.GetGroup(), "central", s.GetCentral())
		r.standing = s
	}
	return nil
}
