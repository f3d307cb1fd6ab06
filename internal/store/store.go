// Package store is the contract of engines that store windows durably and merge them.
//
// Stacks are identified by hash. A batch comes with a forest that describes the stacks the
// store may not know. If the store is missing one, it stores only the forest and returns the
// missing hashes (UnknownError). Once Put has returned, a window survives any crash, and is
// stored exactly once however often it is sent.
//
// storetest is one test suite for all engines.
package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// Instance identifies the instance of its service that a series belongs to. Programs with
// several names or languages are one instance. The node is part of the identity, because a
// unit has the same name on all nodes.
func Instance(series profile.Labels) string {
	node, name := placeOf(series)
	return strings.Join([]string{series[ServiceLabel], node, name}, "\x00")
}

// placeOf returns what tells instances of a service apart. Roll-ups of services have neither.
func placeOf(series profile.Labels) (node, name string) {
	return series["node"], cmp.Or(series["instance"], series["k8s.pod.uid"], series["container"], series["unit"])
}

// ServiceLabel is the label that names the service of a series. Dictionaries and keys are
// divided by it. A series without it belongs to the service "".
const ServiceLabel = "service"

// Batch is windows that share one table of stacks.
type Batch struct {
	Stacks  []profile.Hash  // rows index into it
	Forest  *profile.Forest // describes stacks that the store may not know; may be nil
	Windows []Window
}

// Window is a window in columns. Its key is the tenant, the level, the series, Head.Task,
// Head.Kind, Head.Start and Run; a later window with the same key replaces it, and one that is
// part of a stored merged window is dropped. Above the raw level it has one value
// type, and Head.Duration is the part of its step that was watched.
type Window struct {
	Of       int // number of windows that were merged into it; 0: it is as it was cut
	Series   profile.Labels
	Head     profile.Head // its Target is ignored
	Run      profile.Run
	Scales   []int64 // the values of each type are multiples of these
	Threads  []profile.Thread
	Contexts []profile.Context
	// Minutes that levels were observed in, of a rolled-up window: its values are sums over
	// these minutes, see Coverage. Nil for deltas, and at the raw level.
	Minutes Minutes
	// Primary is the kind of the windows that were merged into a rolled-up window, if its own
	// is another of their value types: both have the head of the same windows.
	Primary   string
	Exemplars []profile.Exemplar // their stacks index into Batch.Stacks
	Rows      profile.Rows       // their stacks, and those of peers, index into Batch.Stacks; an engine may round squares by up to a quarter of profile.Alike
	Groups    []int64            // Groups values for each of Rows.Values: by replicate group, where several series were merged
	// A window that a relay merged lists the windows that it contains, all of the same task
	// and kind. It begins with the first of them, and ends no earlier than the last begins.
	// It has groups, and neither threads nor levels.
	Contains []Part
}

// Part identifies a window that a relay merged into another one.
type Part struct {
	Series profile.Labels
	Run    profile.Run
	After  time.Duration // from the start of the window that contains it
}

// UnknownError lists stacks that windows refer to and the store does not know. Only the
// forest of the batch was stored.
type UnknownError struct{ Stacks []profile.Hash }

func (e *UnknownError) Error() string { return fmt.Sprintf("%d stacks are unknown", len(e.Stacks)) }

// OverlapError lists merged windows of a batch that contain parts which are stored already,
// by their indexes. Only the forest of the batch was stored. The sender can send it again
// without these parts.
type OverlapError struct{ Parts map[int][]int }

func (e *OverlapError) Error() string {
	return fmt.Sprintf("%d windows contain windows that are stored already", len(e.Parts))
}

// Damage counts what could not be read and was left out.
type Damage struct {
	Parts int // windows, or stretches of a series
	// Tables counts damaged parts of stacks and names, by table. Every call that needs the
	// same table counts them again.
	Tables map[string]int
}

// Count returns the number of damaged parts of all kinds.
func (d Damage) Count() int {
	count := d.Parts
	for _, parts := range d.Tables {
		count += parts
	}
	return count
}

// Add merges the damage of another call for the same tenant.
func (d *Damage) Add(o Damage) {
	d.Parts += o.Parts
	if d.Tables == nil && len(o.Tables) > 0 {
		d.Tables = map[string]int{}
	}
	maps.Copy(d.Tables, o.Tables)
}

// Err returns a DamagedError, or nil if nothing is damaged.
func (d Damage) Err() error {
	if d.Count() == 0 {
		return nil
	}
	return &DamagedError{d}
}

// DamagedError means that a call did everything except for what could not be read. The
// results that come with it are valid.
type DamagedError struct{ Damage }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d parts of the store are damaged and were left out", e.Count())
}

// Errors that callers decide by.
var (
	ErrClosed = errors.New("the store is closed")
	ErrFull   = errors.New("the store cannot write") // nothing was stored; a retry may succeed
)

// Store is all that an engine does. It is safe for concurrent use. Tenants do not see each
// other's windows; a tenant that never wrote is empty. Users ask for the parts that they need.
//
// Calls that read and that meet damage return their results with a DamagedError.
type Store interface {
	Windows
	Rollups
	Names
	Upkeep
	Close() error
}

// CommonScale returns the greatest common divisor of two scales. The scale of no values is 0.
func CommonScale(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}
