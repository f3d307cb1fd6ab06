package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/server/fleet"
	"atys.dev/atys/internal/server/rates"
)

// tenant is what the server knows of a tenant.
type tenant struct {
	*fleet.Fleet
	*rates.Rates
}

// tenants are those that have been asked for.
type tenants struct {
	own      string // tenant of clients in this process, and of those that need no identity
	profiles string // directory; "": profiles are not kept
	groupBy  string
	wake     chan<- struct{} // a rate may have to be decided on
	now      func() time.Time
	log      *slog.Logger

	mu    sync.Mutex // guards all below
	of    map[string]*tenant
	ended bool
}

// name returns the tenant of a request.
func (t *tenants) name(ctx context.Context) string {
	if who, ok := auth.From(ctx); ok {
		return who.Tenant
	}
	return t.own
}

// asking returns the tenant of a request.
func (t *tenants) asking(ctx context.Context) (*tenant, error) {
	one, err := t.get(t.name(ctx))
	if err != nil {
		t.log.Error("read the profiles of a tenant", "tenant", t.name(ctx), "error", err)
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the profiles could not be read: the server's log says why"))
	}
	return one, nil
}

// fleet returns the fleet of a request's tenant.
func (t *tenants) fleet(ctx context.Context) (*fleet.Fleet, error) {
	one, err := t.asking(ctx)
	if err != nil {
		return nil, err
	}
	return one.Fleet, nil
}

// get returns a tenant, and reads its profiles the first time.
func (t *tenants) get(name string) (*tenant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		return one, nil
	}
	dir := t.profiles
	if dir != "" {
		dir = filepath.Join(dir, name)
	}
	r := rates.New(t.now, t.wake)
	f, err := fleet.New(fleet.Options{Tenant: name, Profiles: dir, GroupBy: t.groupBy, Rates: r, Now: t.now, Log: t.log})
	if err != nil {
		return nil, err
	}
	r.Start()
	if t.ended {
		f.Close()
	}
	one := &tenant{f, r}
	t.of[name] = one
	return one, nil
}

// all lists those that have been asked for.
func (t *tenants) all() (all []*tenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.of {
		all = append(all, one)
	}
	return all
}

// deciding returns the rates of all tenants, by name.
func (t *tenants) deciding() map[string]rates.Tenant {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]rates.Tenant{}
	for name, one := range t.of {
		all[name] = rates.Tenant{Rates: one.Rates, Orders: one.Fleet}
	}
	return all
}

// tidy tidies all fleets, also where no agent connects any more.
func (t *tenants) tidy() {
	for _, one := range t.all() {
		one.Tidy()
	}
}

// end ends the streams of all fleets, and of those that are asked for later.
func (t *tenants) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	for _, one := range t.all() {
		one.Close()
	}
}
