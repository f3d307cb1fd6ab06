package server

import (
	"context"
	"maps"
	"sync"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Status describes the server; see the service Control.
func (s *Server) Status(ctx context.Context, _ *atysv1.StatusRequest) (*atysv1.StatusResponse, error) {
	response := &atysv1.StatusResponse{Version: s.options.Version, Protocol: wire.Protocol, StartedUnixNano: s.began.UnixNano(),
		ReceivedUnixNano: s.options.Now().UnixNano(), Tenant: s.tenants.name(ctx), Role: string(auth.Operator)}
	if who, ok := auth.From(ctx); ok {
		response.Role, response.Name = string(who.Role), who.Name
	}
	f, err := s.tenants.fleet(ctx)
	if err != nil {
		return nil, err
	}
	response.Quotas = append(f.Quotas(), s.Names.quota(response.GetTenant())...)
	if response.GetTenant() == s.options.Tenant {
		if response.Machine, err = s.machine(ctx); err != nil {
			return nil, s.unread(err)
		}
	}
	response.AnsweredUnixNano = s.options.Now().UnixNano()
	return response, nil
}

// machine describes what all tenants share.
func (s *Server) machine(ctx context.Context) (*atysv1.Machine, error) {
	m := &atysv1.Machine{Pushes: s.metrics.ended.all(), Refused: s.metrics.refusals.all()}
	if tokens := s.options.Admission.Tokens; tokens != nil {
		m.TokenFailures = uint64(tokens.Failed())
	}
	var disk unix.Statfs_t
	if s.options.Disk != "" {
		if err := unix.Statfs(s.options.Disk, &disk); err != nil {
			return nil, err
		}
		m.DiskBytes, m.DiskFreeBytes = disk.Blocks*uint64(disk.Bsize), disk.Bavail*uint64(disk.Bsize)
	}
	overdue, err := s.Upkeep.Overdue(ctx)
	m.OverdueSteps = uint64(overdue)
	return m, err
}

// tally counts by name.
type tally struct {
	mu sync.Mutex // guards of
	of map[string]uint64
}

func (t *tally) count(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]uint64{}
	}
	t.of[name]++
}

func (t *tally) all() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.of)
}
