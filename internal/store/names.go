package store

import (
	"context"

	"atys.dev/atys/internal/profile"
)

// Names stores the names of code.
type Names interface {
	// Unnamed lists places in files, by build-id, that have no name yet.
	Unnamed(ctx context.Context, tenant string) ([]profile.Place, error)
	// Name stores names that came late. They apply to stored windows too.
	Name(ctx context.Context, tenant string, places []profile.Place) error
}
