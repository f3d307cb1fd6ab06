package ui

import (
	"sync"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/whose"
)

// Classes says whose code frames are, by the rules that come with atys. It caches
// classes for as long as the server runs: pages show the same files and functions
// again, and classifying them each time took two fifths of the time of a page.
type Classes struct {
	mu         sync.Mutex // guards classifier
	classifier *whose.Classifier
}

// Of returns a grove whose frames have their classes.
func (c *Classes) Of(g *profile.Grove) *profile.Grove {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classifier == nil {
		c.classifier = whose.New(nil)
	}
	return c.classifier.Grove(g)
}
