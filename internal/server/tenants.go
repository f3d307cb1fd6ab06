package server

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"sync"

	"connectrpc.com/connect"
)

// fleets are those of all tenants: each has its own agents and profiles.
type fleets struct {
	options Options
	rouse   chan<- struct{} // see rates

	mu    sync.Mutex // guards all below
	of    map[string]*fleet
	ended bool
}

// fleet finds a tenant's, or reads what is kept of it.
func (f *fleets) fleet(tenant string) (*fleet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.of[tenant]; one != nil {
		return one, nil
	}
	o := f.options
	if o.Profiles != "" {
		o.Profiles = filepath.Join(o.Profiles, tenant)
	}
	one, err := newFleet(o, o.Log, o.Now)
	if err != nil {
		return nil, err
	}
	one.rates.wake = f.rouse
	one.rates.rouse()
	if f.ended {
		one.end()
	}
	f.of[tenant] = one
	return one, nil
}

// all lists those that have been asked for.
func (f *fleets) all() (all []*fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.of {
		all = append(all, one)
	}
	return all
}

// tidy forgets what ended long ago, also of tenants that nobody asks for.
func (f *fleets) tidy() {
	for _, one := range f.all() {
		one.tidy()
	}
}

// byTenant gives them by whose they are.
func (f *fleets) byTenant() map[string]*fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.of)
}

// end has all who attend go, and all who come.
func (f *fleets) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	for _, one := range f.all() {
		one.end()
	}
}

// fleet gives that of who asks.
func (s *Server) fleet(ctx context.Context) (*fleet, error) {
	f, err := s.fleets.fleet(s.tenant(ctx))
	if err != nil {
		s.log.Error("read a tenant's profiles", "tenant", s.tenant(ctx), "error", err)
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the profiles could not be read: the server's log says why"))
	}
	return f, nil
}
