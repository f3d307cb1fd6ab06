// Package sampler is the contract between whatever takes samples and whatever asks for them.
package sampler

import (
	"atys.dev/atys/internal/profile"
)

// Sampler fills windows until it is closed.
type Sampler interface {
	// Cut ends the window that is being filled, begins the next at that same
	// instant, and returns the ended one. Names are not filled in.
	Cut() (*profile.Window, error)
	// Close stops sampling. Samples since the last Cut are lost.
	Close() error
}
