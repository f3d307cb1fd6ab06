package store

import (
	"context"
	"time"
)

// Upkeep keeps what is stored within bounds.
type Upkeep interface {
	// Tenants lists all tenants that ever wrote.
	Tenants(ctx context.Context) ([]string, error)
	// Drop deletes the windows of a level that begin before a time, by whole days.
	Drop(ctx context.Context, tenant string, level Level, before time.Time) error
	// Tidy removes series that have no windows at any level, so that they no longer count
	// against a quota. It may also forget the stacks of services without windows.
	Tidy(ctx context.Context, tenant string) error
	// Usage returns what a tenant uses. Put and Roll return a QuotaError once it reaches the
	// quota (Quota.Full), so that a quota is exceeded by one commit at most. Only Drop makes
	// room.
	Usage(ctx context.Context, tenant string) (*Usage, error)
}
