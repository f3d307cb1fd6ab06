// Package pprof reads and writes windows as pprof profiles, the format of `go tool pprof` and of `go build -pgo`.
//
// Writing goes window -> dictionaries of the format (functions, mappings,
// locations) -> samples -> comments for what the format has no field for
// (notes.go) -> gzip. Reading goes the other way, and takes profiles of other
// tools too: what they leave out stays unknown, it is never guessed.
//
// docs/format/pprof.md says which field becomes which.
package pprof

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/profile"
)

const (
	samplesType  = "samples"
	samplesUnit  = "count"
	squaresType  = "squares"
	pathBuildID  = "path:" // leads a build-id made from a path, for files without one
	labelThread  = "thread"
	labelProcess = "process"
	labelPID     = "pid"
	labelTID     = "tid"
	labelSlot    = "slot"
	labelEnd     = "end"
)

// The labels of a row's context and of exemplars.
const (
	labelReason   = "reason"
	labelEndpoint = "endpoint"
	labelInterval = "interval"
	labelLabels   = "labels" // that the program set
	labelTrace    = "trace_id"
	labelSpan     = "span_id"
)

// Write writes a window as a gzipped profile.
func Write(w io.Writer, win *profile.Window) error {
	p, extra, err := encode(win)
	if err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	// Profile.Write would lose the error of the last flush (a full disk).
	zip := gzip.NewWriter(w)
	if err := p.WriteUncompressed(zip); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	// Messages of protobuf are added up by writing one after the other.
	if _, err := zip.Write(extra); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	return nil
}

// encode gives the profile, and the fields of ours that follow it.
func encode(win *profile.Window) (p *gp.Profile, extra []byte, err error) {
	if len(win.Types) == 0 {
		return nil, nil, errors.New("the profile has no value types")
	}
	e := newEncoder(win)
	e.columns()
	e.dictionaries()
	if err := e.samples(); err != nil {
		return nil, nil, err
	}
	e.p.TimeNanos = unixNano(win.Start)
	e.p.DurationNanos = int64(win.Duration)
	e.extras = e.rowNotes()
	e.p.Comments = e.comments()
	for _, note := range e.hidden() {
		extra = appendBytes(extra, noteField, []byte(note))
	}
	if timed := e.timed(); len(timed) > 0 {
		extra = appendBytes(extra, timedField, timed)
	}
	return e.p, extra, nil
}

// unixNano is 0 for times the format cannot hold, the zero time above all.
func unixNano(t time.Time) int64 {
	if y := t.Year(); y < 1970 || y > 2261 {
		return 0
	}
	return t.UnixNano()
}

// columns lays out the sample's values: samples, one per value type, squares.
func (e *encoder) columns() {
	e.p.SampleType = []*gp.ValueType{{Type: samplesType, Unit: samplesUnit}}
	for i, t := range e.win.Types {
		if t.Kind == samplesType && t.Unit == samplesUnit && e.equalsN(i) {
			e.column = append(e.column, 0)
			continue
		}
		e.column = append(e.column, len(e.p.SampleType))
		e.p.SampleType = append(e.p.SampleType, &gp.ValueType{Type: utf8(t.Kind), Unit: utf8(t.Unit)})
	}
	main := e.win.Types[0]
	e.p.DefaultSampleType = utf8(main.Kind)
	e.p.PeriodType = &gp.ValueType{Type: utf8(main.Kind), Unit: utf8(main.Unit)}
	e.p.Period = main.Period
	if e.scale = squareScale(e.win); e.scale != noSquares {
		unit := utf8(main.Unit) + "^2"
		if e.scale != 0 {
			unit = fmt.Sprintf("%s*2^%d", unit, e.scale)
		}
		e.squares = len(e.p.SampleType)
		e.p.SampleType = append(e.p.SampleType, &gp.ValueType{Type: squaresType, Unit: unit})
	}
}

// equalsN tells whether value i only repeats the number of samples.
func (e *encoder) equalsN(i int) bool {
	for _, r := range e.win.Rows.All() {
		if i >= len(r.Values) || r.Values[i] != r.N {
			return false
		}
	}
	return true
}

const noSquares = math.MaxInt

// squareScale finds the power of two that squares are divided by, such that
// all of them together fit an int64 (tools add columns up) and, where it can
// be, each is a whole number: then nothing is rounded.
func squareScale(win *profile.Window) int {
	sum, finest := 0.0, 0
	for _, r := range win.Rows.All() {
		squares := r.Sum(0).Squares
		if squares == 0 || math.IsNaN(squares) || math.IsInf(squares, 0) {
			continue
		}
		sum += math.Abs(squares)
		frac, exp := math.Frexp(squares)
		for bits := 53; bits > 0 && frac != math.Trunc(frac); bits-- {
			frac, exp = frac*2, exp-1
		}
		finest = min(finest, exp)
	}
	if sum == 0 {
		return noSquares
	}
	_, top := math.Frexp(sum)
	return max(finest, top-62)
}

func scaleSquares(squares float64, scale int) int64 {
	if math.IsNaN(squares) || math.IsInf(squares, 0) {
		return 0
	}
	return int64(math.Round(math.Ldexp(squares, -scale)))
}
