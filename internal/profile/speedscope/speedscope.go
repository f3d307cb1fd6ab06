// Package speedscope writes windows as the JSON file of www.speedscope.app.
//
// The file has one list of functions and any number of profiles over it: one
// per value type, or, where a window kept each sample's time, one per thread
// in the order of time. docs/format/speedscope.md says what is lost.
package speedscope

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"atys.dev/atys/internal/profile"
)

// Options say what Write writes. The zero value writes each value type, threads folded together.
type Options struct {
	Name   string // of the whole file, as the page shows it
	Thread bool   // a profile per thread, of the first value type
}

// The file, as speedscope's src/lib/file-format-spec.ts has it.
type file struct {
	Schema   string  `json:"$schema"`
	Shared   shared  `json:"shared"`
	Profiles []sheet `json:"profiles"`
	Name     string  `json:"name,omitempty"`
	Active   int     `json:"activeProfileIndex"`
	Exporter string  `json:"exporter"`

	index frameIDs
}

type shared struct {
	Frames []frame `json:"frames"`
}

type frame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// sheet is one of the file's profiles, of the kind the format calls sampled:
// weights follow each other without gaps, an empty stack is a gap.
type sheet struct {
	Type    string  `json:"type"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Start   int64   `json:"startValue"`
	End     int64   `json:"endValue"`
	Samples [][]int `json:"samples"`
	Weights []int64 `json:"weights"`
}

// A function is one frame of the file wherever it is called from: speedscope
// tells functions apart by their place in the list.
type frameIDs map[profile.FrameKey]int

// Write writes a window. Values must not be negative: the format has no place
// for a difference.
func Write(w io.Writer, win *profile.Window, o Options) error {
	if len(win.Types) == 0 {
		return errors.New("write speedscope: the profile has no value types")
	}
	for _, r := range win.Rows.All() {
		if slices.ContainsFunc(r.Values, func(v int64) bool { return v < 0 }) {
			return errors.New("write speedscope: the format has no negative values: is this a difference?")
		}
	}
	f := &file{Schema: "https://www.speedscope.app/file-format-schema.json", Shared: shared{Frames: []frame{}},
		Name: o.Name, Exporter: "atys", index: frameIDs{}}
	switch {
	case len(win.Samples) > 0:
		f.timed(win)
	case o.Thread:
		f.threads(win)
	default:
		for i, t := range win.Types {
			f.rows(win, t.Kind, i, func(profile.Row) bool { return true })
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f); err != nil {
		return fmt.Errorf("write speedscope: %w", err)
	}
	return nil
}

func newSheet(name string, t profile.ValueType) sheet {
	s := sheet{Type: "sampled", Name: name, Unit: "none", Samples: [][]int{}, Weights: []int64{}}
	switch t.Unit {
	case "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes":
		s.Unit = t.Unit
	}
	return s
}

func (s *sheet) add(stack []int, weight int64) {
	s.Samples = append(s.Samples, stack)
	s.Weights = append(s.Weights, weight)
	s.End += weight
}

// rows adds a profile of one value over the rows wanted.
func (f *file) rows(win *profile.Window, name string, value int, want func(profile.Row) bool) {
	s := newSheet(name, win.Types[value])
	for _, r := range win.Rows.All() {
		if v := r.Values[value]; v != 0 && want(r) {
			s.add(f.stack(win, r.Stack), v)
		}
	}
	f.Profiles = append(f.Profiles, s)
}

// threads adds a profile per thread, the one with most in it first.
func (f *file) threads(win *profile.Window) {
	totals := map[profile.ThreadID]int64{}
	for _, r := range win.Rows.All() {
		totals[r.Thread] += r.Values[0]
	}
	for _, id := range byTotal(totals) {
		f.rows(win, threadName(win.Thread(id)), 0, func(r profile.Row) bool { return r.Thread == id })
	}
	if len(f.Profiles) == 0 {
		f.rows(win, win.Types[0].Kind, 0, func(profile.Row) bool { return true })
	}
}

// timed adds a profile per thread with its samples in the order of time. A
// sample stands for the time up to it; what lies between two is a gap.
func (f *file) timed(win *profile.Window) {
	samples := slices.Clone(win.Samples)
	slices.SortStableFunc(samples, func(a, b profile.Sample) int { return cmp.Compare(a.Time, b.Time) })
	totals := map[profile.ThreadID]int64{}
	sheets := map[profile.ThreadID]*sheet{}
	t := win.Types[0]
	clock := t.Unit == "nanoseconds"
	for _, smp := range samples {
		s := sheets[smp.Thread]
		if s == nil {
			s = new(newSheet(threadName(win.Thread(smp.Thread)), t))
			sheets[smp.Thread] = s
		}
		totals[smp.Thread] += smp.Weight
		weight := smp.Weight
		if clock {
			gap := int64(smp.Time) - weight - s.End
			if gap > 0 {
				s.add([]int{}, gap)
			} else {
				weight += gap // the one before it reaches into this one
			}
		}
		if weight > 0 {
			s.add(f.stack(win, smp.Stack), weight)
		}
	}
	for _, id := range byTotal(totals) {
		s := sheets[id]
		if clock && win.Duration > time.Duration(s.End) {
			s.add([]int{}, int64(win.Duration)-s.End)
		}
		f.Profiles = append(f.Profiles, *s)
	}
}

// byTotal orders threads by what they have, so that the first shown matters most.
func byTotal(totals map[profile.ThreadID]int64) []profile.ThreadID {
	ids := make([]profile.ThreadID, 0, len(totals))
	for id := range totals {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b profile.ThreadID) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b))
	})
	return ids
}

func threadName(t profile.Thread) string {
	name := t.Name
	if t.Process != "" && t.Process != t.Name {
		name = t.Process + " / " + t.Name
	}
	if name == "" {
		name = "no thread"
	}
	if t.TID != 0 {
		name += " (" + strconv.Itoa(t.TID) + ")"
	}
	return name
}

// stack gives a stack's functions, root first.
func (f *file) stack(win *profile.Window, id profile.StackID) []int {
	out := []int{}
	if end := win.Stacks[id].End; end.Truncated() {
		out = append(out, f.frame(profile.Frame{Function: "[" + end.String() + "]"}))
	}
	for _, fr := range win.AppendStack(nil, id) {
		out = append(out, f.frame(fr))
	}
	return out
}

func (f *file) frame(fr profile.Frame) int {
	key := fr.Key()
	i, ok := f.index[key]
	if !ok {
		i = len(f.Shared.Frames)
		f.index[key] = i
		// Speedscope colours by file: a binary serves where no source is known.
		f.Shared.Frames = append(f.Shared.Frames, frame{Name: fr.Function, File: cmp.Or(fr.File, fr.Mapping), Line: fr.StartLine})
	}
	return i
}
