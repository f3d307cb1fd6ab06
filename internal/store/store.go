// Package store is the contract of what keeps windows for good, and adds them up.
//
// A stack is known by its hash. The forest of a batch explains those that a
// store may not know; a store that misses one keeps nothing of the batch but its
// forest, and says which (UnknownError). What Put has returned for is there after
// any crash, exactly once, however often it was sent.
//
// What several engines must do alike is tested by storetest.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
)

// Level is how far windows have been added up.
type Level uint8

// The levels, as Put and Query know them. A service's windows have no instance.
const (
	Raw Level = iota
	Series10m
	Series1h
	Service1m
	Service10m
	Service1h
)

// Groups is in how many replicate groups values are kept above the raw level.
const Groups = 8

// ServiceLabel is the label of a series that names its service. Dictionaries
// and keys go by it; a series without it belongs to the service "".
const ServiceLabel = "service"

// Batch is windows under one table of stacks.
type Batch struct {
	Stacks  []profile.Hash  // rows point into it
	Forest  *profile.Forest // stacks that the store may not know; may be nil
	Windows []Window
}

// Window is a window in columns. Its key is the series, Head.Task, Head.Start
// and Run: of two with the same key the later one counts.
type Window struct {
	Series   profile.Labels
	Head     profile.Head // its Target is not looked at
	Run      profile.Run
	Scales   []int64 // values of each type are multiples of these
	Threads  []profile.Thread
	Contexts []profile.Context
	Rows     Rows
}

// Rows are columns; row i is the i-th of each. Thread, Context, Slot and Spread
// may be nil: all zero.
type Rows struct {
	Stack   []uint32
	Thread  []uint32 // of Threads, plus one
	Context []uint32 // of Contexts, plus one
	Slot    []uint32
	N       []int64
	Value   []int64 // all rows of the first type, then of the second ...
	Spread  []int64 // sum of squared weights less value*value/n, in squared scales of the first type
	Groups  []int64 // above the raw level: Groups values a row, of the first type
}

// UnknownError lists stacks that windows name and nobody has explained. Nothing
// of the batch was kept but its forest.
type UnknownError struct{ Stacks []profile.Hash }

func (e *UnknownError) Error() string { return fmt.Sprintf("%d stacks are not known", len(e.Stacks)) }

// DamagedError says that a scan gave all but what could not be read.
type DamagedError struct{ Parts int } // windows, or stretches of a series

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d parts of the store are damaged and were left out", e.Parts)
}

// Errors that callers decide by.
var (
	ErrClosed = errors.New("the store is closed")
	ErrFull   = errors.New("the store cannot write") // nothing was kept; later it may
)

// Query chooses windows.
type Query struct {
	Level    Level
	Service  string                           // of this service alone; "": of all
	Match    func(series profile.Labels) bool // nil: all of them; labels are not to be changed
	Task     string                           // of this task alone; "": of all
	From, To time.Time                        // windows that begin in [From, To); never before 1970
}

// Grouping says in which columns of a merge a window's rows are added up.
type Grouping struct {
	// Key names the column of a window; nil: all go to one, named "".
	Key func(series profile.Labels, head *profile.Head) string
	// Thread, if not nil, names it by thread as well; what it gives is appended.
	Thread func(t profile.Thread) string
}

// Merged is windows added up, in columns over one forest.
type Merged struct {
	Forest  *profile.Forest
	Columns []Column // in the order of their keys
	Damaged int      // windows, or stretches of a series, that could not be read and are left out
}

// Column is a group of windows added up. Head is merged as profile.Merge does:
// exact times, idle and watched times and losses are sums.
type Column struct {
	Key     string
	Head    profile.Head
	Windows int
	Sums    []Sum // one per stack that has samples, in the order of the forest
}

// Sum is what was sampled on one stack.
type Sum struct {
	Call    int           // of the forest
	N       int64         // samples
	Value   int64         // of the type asked for
	Squares float64       // of weights; those of a type that is not a window's first count as if alike in a row
	Groups  [Groups]int64 // at the raw level by the hash of the series
}

// Store keeps windows. It is safe for concurrent use. Tenants know nothing of
// each other; what is asked of a tenant that never wrote is empty.
type Store interface {
	// Put keeps a batch at a level and returns when it is durable. Where it returns
	// another error than those above, it may be: what is sent again is there once.
	Put(ctx context.Context, tenant string, level Level, b *Batch) error
	// Series lists the series that have windows, sorted by their String.
	Series(ctx context.Context, tenant string, q Query) ([]profile.Labels, error)
	// Merge adds up the values of one kind; windows without it are left out.
	Merge(ctx context.Context, tenant string, q Query, kind string, g Grouping) (*Merged, error)
	// Scan gives windows one by one, by series and time, with the stacks they
	// name. It ends at the first error of each, which it returns. What is damaged
	// it leaves out, and says so at its end by a DamagedError.
	Scan(ctx context.Context, tenant string, q Query, each func(w *profile.Window, run profile.Run) error) error
	// Name keeps names that came late; they hold for windows that are there already.
	Name(ctx context.Context, tenant string, places []profile.Place) error
	// Drop forgets windows of a level that begin before a time, by whole days.
	Drop(ctx context.Context, tenant string, level Level, before time.Time) error
	Close() error
}

// OpenRows gives rows as a profile.Window has them; stacks are those of each row.
func (w *Window) OpenRows(stacks []profile.StackID) []profile.Row {
	r := &w.Rows
	rows := make([]profile.Row, len(stacks))
	at := func(column []uint32, i int) uint32 {
		if column == nil {
			return 0
		}
		return column[i]
	}
	for i := range rows {
		row := profile.Row{Stack: stacks[i], Thread: profile.ThreadID(at(r.Thread, i)), Context: profile.ContextID(at(r.Context, i)),
			Slot: at(r.Slot, i), N: r.N[i], Values: make([]int64, len(w.Scales))}
		for t, scale := range w.Scales {
			row.Values[t] = r.Value[t*len(rows)+i] * scale
		}
		if len(w.Scales) > 0 && row.N > 0 {
			value, scale := float64(row.Values[0]), float64(w.Scales[0])
			row.Squares = value * value / float64(row.N)
			if r.Spread != nil {
				row.Squares += float64(r.Spread[i]) * scale * scale
			}
		}
		rows[i] = row
	}
	return rows
}
