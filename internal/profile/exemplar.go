package profile

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// MaxExemplars is the largest number of exemplars that a window has.
const MaxExemplars = 64

// Exemplar is a sample of a traced request, with the row that counts it. Identifiers of traces
// are unbounded, so a window has a bounded random choice of exemplars.
type Exemplar struct {
	Trace, Span string
	Stack       StackID
	Thread      ThreadID
	Context     ContextID
	Time        time.Duration // since the window's start; 0: unknown
	Value       int64         // of the first value type
}

// rank orders exemplars at random, but in the same order everywhere: merged windows have the
// same exemplars as one window of all samples would have (a bottom-k sketch; Cohen and Kaplan,
// "Summarizing data using bottom-k sketches", PODC 2007).
func (e *Exemplar) rank() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %d", e.Trace, e.Span, e.Value) // never fails
	// FNV gives similar identifiers similar hashes: mix the bits, as MurmurHash3 does.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// ChooseExemplars returns a random choice of exemplars, at most MaxExemplars. It sorts its
// argument.
func ChooseExemplars(all []Exemplar) []Exemplar {
	if len(all) == 0 {
		return nil
	}
	type ranked struct {
		rank uint64
		Exemplar
	}
	order := make([]ranked, len(all))
	for i, e := range all {
		order[i] = ranked{e.rank(), e}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Time, b.Time), cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Thread, b.Thread))
	})
	for i, e := range order {
		all[i] = e.Exemplar
	}
	return all[:min(len(all), MaxExemplars)]
}
