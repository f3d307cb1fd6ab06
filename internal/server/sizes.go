package server

import (
	"context"
	"sync"
	"time"

	"atys.dev/atys/internal/store"
)

// sizes are what tenants took when they were last measured. Commits wait while one
// is: upkeep does it now and then, and whoever asks is told the last figure.
type sizes struct {
	mu sync.Mutex // guards of
	of map[string]size
}

type size struct {
	usage *store.Usage
	at    time.Time
}

func (s *sizes) note(tenant string, usage *store.Usage, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]size{}
	}
	s.of[tenant] = size{usage, now}
}

// last is the last figure; false: there is none yet.
func (s *sizes) last(tenant string) (size, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.of[tenant]
	return one, ok
}

// measureEvery is how often a tenant is measured that has no quota to keep within.
const measureEvery = time.Minute

// measure measures a tenant, unless it was lately.
func (u *upkeep) measure(ctx context.Context, tenant string) error {
	now := u.now()
	if last, ok := u.sizes.last(tenant); ok && now.Sub(last.at) < measureEvery {
		return nil
	}
	usage, err := u.options.Store.Usage(ctx, tenant)
	if err != nil {
		return err
	}
	u.sizes.note(tenant, usage, now)
	return nil
}
