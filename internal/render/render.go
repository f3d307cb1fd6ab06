// Package render draws profile trees: flame graphs as one HTML file, SVG or terminal text, and tables.
//
// The flow, from a tree to a page:
//
//	profile.Tree   one column, or two for a comparison
//	-> document    the tree as columns of small integers, its head as JSON (encode.go)
//	-> HTML        viewer/*.js, viewer.css and the document in one file (bundle.go, html.go)
//
// The viewer draws on a canvas what it finds visible; SVG and Terminal lay out
// boxes here (boxes.go). Intervals are computed in Go only: the page gets them
// as curves over the share (curve.go). Names come from
// foreign programs, so everything drawn goes through printable first.
package render

import (
	"errors"
	"fmt"
	"strings"

	"atys.dev/atys/internal/profile"
)

// ColorBy says what a box's colour stands for.
type ColorBy string

const (
	ByKind    ColorBy = "kind"    // what executes the frame
	ByClass   ColorBy = "class"   // whose code it is
	ByPackage ColorBy = "package" // one colour per package or binary
)

// Options shape all renderings; each uses the fields that mean something to
// it. The zero value is ready.
type Options struct {
	Title    string
	ColorBy  ColorBy // default ByKind
	Flame    bool    // root at the bottom; default is an icicle, root on top
	Lead     int     // leading levels that are processes and threads, not functions
	Width    int     // pixels of an SVG (default 1200), cells of a terminal (default 100) or table (0: no limit)
	MinWidth float64 // pixels of an SVG below which a box is left out (default 0.3)
	Limit    int     // rows of a table, 0 for all
	NoColor  bool    // terminal output without colours (the command obeys NO_COLOR)
	RGB      bool    // the terminal has 24-bit colours (COLORTERM says so); else 256 are used

	// Lacks is what HTML says is missing from the first column; nil: what its losses
	// tell. An answer of a server knows more than these.
	Lacks *Lacks
}

var errColumns = errors.New("a tree has one column, or two to compare")

// check refuses trees and options nothing can be drawn from.
func (o Options) check(t *profile.Tree) error {
	if t == nil || t.Root == nil || len(t.Columns) < 1 || len(t.Columns) > 2 {
		return errColumns
	}
	switch o.ColorBy {
	case "", ByKind, ByClass, ByPackage:
	default:
		return fmt.Errorf("colour by %q: want kind, class or package", o.ColorBy)
	}
	return nil
}

func (o Options) colorBy() ColorBy {
	if o.ColorBy == "" {
		return ByKind
	}
	return o.ColorBy
}

func (o Options) title(t *profile.Tree) string {
	if o.Title != "" {
		return Printable(o.Title)
	}
	if len(t.Columns) == 2 {
		return "Comparison"
	}
	head := t.Columns[0].Head
	name := t.Columns[0].Type.Kind + " profile"
	if len(head.Target) > 0 {
		name += " of " + strings.Trim(head.Target.String(), "{}")
	}
	return Printable(name)
}
