package server

import (
	"sync"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/whose"
)

// classes tells whose code frames are, by the rules that come with atys. It lives
// as long as the server, as a page asks for the same files and functions as the one
// before: to class them anew took two fifths of the time a page took.
type classes struct {
	mu         sync.Mutex // guards classifier
	classifier *whose.Classifier
}

// of gives a grove whose frames have their classes.
func (c *classes) of(g *profile.Grove) *profile.Grove {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classifier == nil {
		c.classifier = whose.New(nil)
	}
	return c.classifier.Grove(g)
}
