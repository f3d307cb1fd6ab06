package render

import (
	"fmt"
	"io"

	"atys.dev/atys/internal/profile"
)

// Document writes a tree as the viewer reads it, without a page.
func Document(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render document: %w", err)
	}
	if err := encode(w, t, o); err != nil {
		return fmt.Errorf("render document: %w", err)
	}
	return nil
}
