package pprof

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/profile"
)

// wholeFile is where mappings end: addresses are offsets of the file, so each
// mapping starts at 0 of its file. The same end in every profile lets pprof
// see that two profiles mean the same mapping. It is not all-ones, by which
// pprof knows mappings whose addresses are the program's own.
const wholeFile = 1 << 47

type encoder struct {
	win     *profile.Window
	p       *gp.Profile
	column  []int // of each value type
	squares int   // column of the squares, 0 if there is none
	scale   int
	end     profile.End // what stacks without a label of their own ended with
	apart   []int       // the row of each sample that follows those of rows
	extras  []string    // notes on rows, see rows.go

	mappings  map[mappingKey]*gp.Mapping
	functions map[functionKey]*gp.Function
	locations []*gp.Location // by LocationID; nil where no row uses it
	order     []functionKey  // functions in the order met
}

type mappingKey struct{ buildID, file string }

type functionKey struct {
	name, linkage, file string
	startLine           int
	attributes          attributes
}

func newEncoder(win *profile.Window) *encoder {
	return &encoder{
		win:       win,
		p:         &gp.Profile{},
		mappings:  map[mappingKey]*gp.Mapping{},
		functions: map[functionKey]*gp.Function{},
		locations: make([]*gp.Location, len(win.Locations)),
		end:       commonEnd(win),
	}
}

// commonEnd is the end most rows have: it need not be written for each.
func commonEnd(win *profile.Window) profile.End {
	var count [256]int
	for _, r := range win.Rows.All() {
		count[win.Stacks[r.Stack].End]++
	}
	best := 0
	for i, n := range count {
		if n > count[best] {
			best = i
		}
	}
	return profile.End(best)
}

// dictionaries makes the locations that rows use, with mappings and functions.
func (e *encoder) dictionaries() {
	used := make([]bool, len(e.win.Stacks))
	needed := make([]bool, len(e.win.Locations))
	use := func(id profile.StackID) {
		if used[id] {
			return
		}
		used[id] = true
		for _, l := range e.win.Stacks[id].Locations {
			needed[l] = true
		}
	}
	for _, r := range e.win.Rows.All() {
		if use(r.Stack); r.Peer != 0 {
			use(profile.StackID(r.Peer - 1))
		}
	}
	for id, need := range needed {
		if need {
			e.location(profile.LocationID(id))
		}
	}
	e.numberFunctions()
}

func (e *encoder) location(id profile.LocationID) {
	loc := e.win.Locations[id]
	frames := e.win.Names[id]
	if len(frames) == 0 && loc.BuildID == "" {
		frames = e.win.Frames(id) // only its name identifies it
	}
	out := &gp.Location{ID: uint64(len(e.p.Location) + 1)}
	file := ""
	if len(frames) > 0 {
		file = frames[len(frames)-1].Mapping
	}
	out.Mapping = e.mapping(loc.BuildID, file)
	if loc.BuildID != "" {
		out.Address = loc.Offset
	}
	for i, f := range frames {
		last := i == len(frames)-1
		key := functionKey{utf8(f.Function), utf8(f.Linkage), utf8(f.File), f.StartLine, attributesOf(f, out.Mapping, last)}
		out.Line = append(out.Line, gp.Line{Function: e.function(key), Line: int64(f.Line)})
		if m := out.Mapping; m != nil {
			m.HasFunctions = true
			m.HasFilenames = m.HasFilenames || f.File != ""
			m.HasLineNumbers = m.HasLineNumbers || f.Line != 0
			m.HasInlineFrames = m.HasInlineFrames || !last
		}
	}
	e.locations[id] = out
	e.p.Location = append(e.p.Location, out)
}

func (e *encoder) mapping(buildID, file string) *gp.Mapping {
	if path, ok := strings.CutPrefix(buildID, pathBuildID); ok {
		buildID = ""
		if file == "" {
			file = path
		}
	}
	if buildID == "" && file == "" {
		return nil
	}
	key := mappingKey{utf8(buildID), utf8(file)}
	m := e.mappings[key]
	if m == nil {
		m = &gp.Mapping{ID: uint64(len(e.p.Mapping) + 1), Limit: wholeFile, File: key.file, BuildID: key.buildID}
		e.mappings[key] = m
		e.p.Mapping = append(e.p.Mapping, m)
	}
	return m
}

func (e *encoder) function(key functionKey) *gp.Function {
	f := e.functions[key]
	if f == nil {
		f = &gp.Function{Name: key.name, SystemName: key.linkage, Filename: key.file, StartLine: int64(key.startLine)}
		e.functions[key] = f
		e.order = append(e.order, key)
	}
	return f
}

// numberFunctions gives functions of the same attributes adjacent numbers, so
// that one short comment names them all.
func (e *encoder) numberFunctions() {
	slices.SortStableFunc(e.order, func(a, b functionKey) int { return a.attributes.compare(b.attributes) })
	for i, key := range e.order {
		f := e.functions[key]
		f.ID = uint64(i + 1)
		e.p.Function = append(e.p.Function, f)
	}
}

func (e *encoder) samples() error {
	stacks := make([][]*gp.Location, len(e.win.Stacks))
	e.p.Sample = make([]*gp.Sample, 0, e.win.Rows.Len())
	if n := e.win.Rows.Types; n != len(e.win.Types) && e.win.Rows.Len() > 0 {
		return fmt.Errorf("rows have %d values, the profile has %d types", n, len(e.win.Types))
	}
	traced, apart := e.exemplars(), []*gp.Sample(nil) // behind all rows, whose numbers notes have
	for i, r := range e.win.Rows.All() {
		s := &gp.Sample{Value: make([]int64, len(e.p.SampleType))}
		s.Value[0] = r.N
		for j, v := range r.Values {
			s.Value[e.column[j]] = v
		}
		if e.squares != 0 {
			s.Value[e.squares] = scaleSquares(r.Sum(0).Squares, e.scale)
		}
		if stacks[r.Stack] == nil {
			ids := e.win.Stacks[r.Stack].Locations
			stacks[r.Stack] = make([]*gp.Location, len(ids))
			for j, id := range ids {
				stacks[r.Stack][j] = e.locations[id]
			}
		}
		s.Location = stacks[r.Stack]
		e.labels(s, r)
		more := e.traced(s, traced[rowKey{r.Stack, r.Thread, r.Context}])
		apart, e.apart = append(apart, more...), append(e.apart, slices.Repeat([]int{i}, len(more))...)
		delete(traced, rowKey{r.Stack, r.Thread, r.Context})
		e.p.Sample = append(e.p.Sample, s)
	}
	e.p.Sample = append(e.p.Sample, apart...)
	return nil
}

// rowKey identifies the row of an exemplar.
type rowKey struct {
	stack   profile.StackID
	thread  profile.ThreadID
	context profile.ContextID
}

// exemplars returns the window's exemplars by row.
func (e *encoder) exemplars() map[rowKey][]profile.Exemplar {
	all := map[rowKey][]profile.Exemplar{}
	for _, x := range e.win.Exemplars {
		key := rowKey{x.Stack, x.Thread, x.Context}
		all[key] = append(all[key], x)
	}
	return all
}

// traced returns each exemplar of a row as a sample of its own, with the identifiers as labels,
// and subtracts it from the row's sample. An exemplar that is all of a row labels that sample.
func (e *encoder) traced(row *gp.Sample, exemplars []profile.Exemplar) (apart []*gp.Sample) {
	main := e.column[0]
	for _, x := range exemplars {
		one := row
		if row.Value[0] > 1 && (main == 0 || x.Value != row.Value[main]) {
			one = &gp.Sample{Location: row.Location, Label: maps.Clone(row.Label), NumLabel: row.NumLabel, Value: make([]int64, len(row.Value))}
			one.Value[0], one.Value[main] = 1, x.Value
			row.Value[0]--
			if main != 0 {
				row.Value[main] -= x.Value
			}
			apart = append(apart, one)
		}
		setLabel(one, labelTrace, x.Trace)
		setLabel(one, labelSpan, x.Span)
		if one == row {
			break
		}
	}
	return apart
}

func setLabel(s *gp.Sample, key, value string) {
	if value == "" {
		return
	}
	if s.Label == nil {
		s.Label = map[string][]string{}
	}
	s.Label[key] = []string{utf8(value)}
}

func (e *encoder) labels(s *gp.Sample, r profile.Row) {
	text := func(key, value string) { setLabel(s, key, value) }
	number := func(key string, value int64) {
		if value == 0 {
			return
		}
		if s.NumLabel == nil {
			s.NumLabel = map[string][]int64{}
		}
		s.NumLabel[key] = []int64{value}
	}
	t := e.win.Thread(r.Thread)
	text(labelThread, t.Name)
	text(labelProcess, t.Process)
	number(labelPID, int64(t.PID))
	number(labelTID, int64(t.TID))
	number(labelSlot, int64(r.Slot))
	if r.Context != 0 {
		c := e.win.Context(r.Context)
		text(labelReason, c.Reason)
		text(labelEndpoint, c.Endpoint)
		text(labelInterval, c.Interval)
		text(labelLabels, c.Labels)
	}
	if end := e.win.Stacks[r.Stack].End; end != e.end {
		text(labelEnd, end.String())
	}
}

// attributes are what the format's functions have no field for.
type attributes struct {
	kind    profile.Kind
	class   profile.Class
	inlined inlining
	mapping string // of the frame, where it is not the location's
	moved   bool   // mapping is to be used
}

// inlining says whether a frame is inlined where its place in the location does not.
type inlining uint8

const (
	inlinedByPlace inlining = iota
	inlinedYes
	inlinedNo
)

// attributesOf gives a frame's attributes; what decode would infer is left zero.
func attributesOf(f profile.Frame, m *gp.Mapping, last bool) attributes {
	a := attributes{kind: f.Kind, class: f.Class}
	if f.Inlined == last {
		a.inlined = inlinedNo
		if f.Inlined {
			a.inlined = inlinedYes
		}
	}
	if file := mappingFile(m); file != utf8(f.Mapping) {
		a.mapping, a.moved = utf8(f.Mapping), true
	}
	return a
}

func mappingFile(m *gp.Mapping) string {
	if m == nil {
		return ""
	}
	return m.File
}

func (a attributes) compare(b attributes) int {
	if a.moved != b.moved {
		if a.moved {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.class, b.class), cmp.Compare(a.inlined, b.inlined),
		cmp.Compare(a.mapping, b.mapping))
}

// utf8 makes a string one that protobuf readers of every language accept.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
