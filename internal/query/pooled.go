package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
)

// Pooled is a step's share by what all steps of its stretch, in which the same was
// done, say of it. Where what was done changed little by little it is less sure than the
// step alone: it may have changed within.
type Pooled struct {
	Share   stats.Interval
	Stretch int  // its number in the answer
	Final   bool // what comes later changes it little
}

// ErrNotPooled says what cannot be pooled.
var ErrNotPooled = errors.New("only steps of a function are pooled, of all that is chosen: say of which function (--function) and how long steps are (--step), and not by what else to split")

// pool has the parts, which are steps, say what they know of each other.
func pool(parts []Part, steps []pooledStep, width float64) {
	var windows []freq.Window
	var own [][]float64
	for i, s := range steps {
		if len(s.window.Parts) == 0 {
			s.own = []float64{parts[i].Share.Value}
		}
		windows, own = append(windows, s.window), append(own, s.own)
	}
	pooled := freq.Pool(windows, freq.Options{Width: width})
	shares := pooled.Intervals(own)
	for i := range parts {
		if e := pooled.Estimates[i]; parts[i].N > 0 {
			parts[i].Pooled = &Pooled{shares[i], e.Stretch, e.Final}
		}
	}
}

// pooledStep is what ran in a step.
type pooledStep struct {
	window freq.Window
	own    []float64 // the function's share of each part of the window, if it is known in parts
}

// partsOfStep is in how many parts a step is taken, where slots are as short as that.
const partsOfStep = 10

// tellParts has a step tell what ran in each part of it. Where some of it was recorded
// without slots, nothing is told.
func (s *pooledStep) tellParts(ctx context.Context, q *question, from, to time.Time, function string) error {
	length := s.window.Length / partsOfStep
	m, err := q.divide(ctx, from, to)
	if err != nil || m == nil {
		return err
	}
	within := stacksOf(m.Forest, function)
	var parts []freq.Window
	var own []float64
	for i := range m.Columns {
		c := &m.Columns[i]
		number, err := strconv.Atoi(c.By[0])
		if err != nil {
			return nil
		}
		var value, of int64
		for _, sum := range c.Sums {
			value += sum.Value
			if within[sum.Call] {
				of += sum.Value
			}
		}
		if functions := running(m.Forest, c.Sums); functions != nil {
			parts = append(parts, freq.Window{Start: from.Add(time.Duration(number) * length), Length: length, Functions: functions})
			own = append(own, float64(of)/float64(value))
		}
	}
	s.window.Parts, s.own = parts, own
	return nil
}

// divide adds up what is selected by parts of a step; nil: it is not read as it was cut. How
// whole that is who merges it has told.
func (q *question) divide(ctx context.Context, from, to time.Time) (*store.Merged, error) {
	parts, err := q.parts(ctx, from, to, q.levels(""))
	if err != nil || slices.ContainsFunc(parts, func(p store.Query) bool { return p.Level != store.Raw }) {
		return nil, err
	}
	for i := range parts {
		parts[i].Kinds = q.Selection.Kinds
	}
	m, err := q.Store.Merge(ctx, q.Tenant, parts, store.Grouping{By: []store.Dimension{store.BySlot}, Where: q.Selection.Context,
		Slots: store.Slots{Start: from, Period: to.Sub(from), Parts: partsOfStep}})
	if err != nil {
		return nil, fmt.Errorf("merge windows by slot: %w", err)
	}
	return m, nil
}
