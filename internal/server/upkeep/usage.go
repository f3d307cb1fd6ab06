package upkeep

import (
	"context"
	"sync"
	"time"

	"atys.dev/atys/internal/store"
)

// usages are the last measurements of what tenants use. Commits wait while a tenant
// is measured, so only upkeep measures, and scrapes read the last result.
type usages struct {
	mu sync.Mutex // guards of
	of map[string]measurement
}

type measurement struct {
	usage *store.Usage
	at    time.Time
}

func (s *usages) note(tenant string, usage *store.Usage, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]measurement{}
	}
	s.of[tenant] = measurement{usage, now}
}

// last returns the last measurement of a tenant, if there is one.
func (s *usages) last(tenant string) (measurement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.of[tenant]
	return one, ok
}

// measureEvery is how often tenants without a quota are measured.
const measureEvery = time.Minute

// measure measures a tenant, unless it was measured recently.
func (u *Upkeep) measure(ctx context.Context, tenant string) error {
	now := u.now()
	if last, ok := u.usage.last(tenant); ok && now.Sub(last.at) < measureEvery {
		return nil
	}
	usage, err := u.options.Store.Usage(ctx, tenant)
	if err != nil {
		return err
	}
	u.usage.note(tenant, usage, now)
	return nil
}
