package pprof

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/profile"
)

// Bounds on what one file may make us allocate. The largest profiles seen in
// the field (a day of a large fleet, merged) stay well below them.
const (
	maxBytes  = 128 << 20 // uncompressed
	maxMemory = 1 << 30   // once parsed, by the estimate below
	maxFrames = 1 << 16   // of one stack: trees are walked recursively
)

// Read reads a profile, gzipped or not, in the current format or in one of
// those that pprof calls legacy (gperftools, old Go and Java).
func Read(r io.Reader) (*profile.Window, error) {
	data, err := uncompressed(r)
	if err != nil {
		return nil, fmt.Errorf("read pprof: %w", err)
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("read pprof: %w", err)
	}
	hidden, timed := extraFields(data)
	w, err := decode(p, hidden, timed)
	if err != nil {
		return nil, fmt.Errorf("read pprof: %w", err)
	}
	return w, nil
}

func uncompressed(r io.Reader) ([]byte, error) {
	data, err := readBounded(r)
	if err != nil || !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, err
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if data, err = readBounded(zip); err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	// The parser would uncompress again, without a bound.
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return nil, errors.New("compressed twice")
	}
	return data, nil
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("larger than %d MB", maxBytes>>20)
	}
	return data, err
}

func parse(data []byte) (p *gp.Profile, err error) {
	// The parser is not ours, and servers read what peers send them.
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("malformed: the parser gave up: %v", r)
		}
	}()
	if len(data) == 0 {
		return nil, errors.New("the file is empty")
	}
	if size := parsedSize(data); size > maxMemory {
		return nil, fmt.Errorf("its samples and locations would take %d MB of memory: more than %d", size>>20, maxMemory>>20)
	}
	if p, err = gp.ParseData(data); err != nil {
		return nil, err
	}
	if len(p.SampleType) == 0 {
		return nil, errors.New("it has no sample types")
	}
	// As `go tool pprof` does: the allocator's own frames, say. A pattern that
	// does not compile leaves all frames in.
	_ = p.RemoveUninteresting()
	return p, nil
}

// parsedSize estimates what the parser allocates: an empty message has two
// bytes in the file.
func parsedSize(data []byte) (size int) {
	const message, label, sampleField, functionField, labelField = 200, 64, 2, 5, 3
	for field, value := range messages(data) {
		if field < sampleField || field > functionField {
			continue
		}
		size += message
		if field == sampleField {
			for nested := range messages(value) {
				if nested == labelField {
					size += label
				}
			}
		}
	}
	return size
}

type decoder struct {
	p         *gp.Profile
	notes     *noted
	b         *profile.Builder
	columns   columns
	functions []attributes // by function ID; nil if there are no notes to trust
	locations map[*gp.Location][]profile.LocationID
	taken     map[profile.Location]*gp.Location
	dropped   map[string]bool // labels a window has no place for
}

func decode(p *gp.Profile, hidden []string, timed []byte) (w *profile.Window, err error) {
	d := &decoder{p: p, notes: parseNotes(p.Comments, hidden), dropped: map[string]bool{},
		locations: make(map[*gp.Location][]profile.LocationID, len(p.Location)), taken: map[profile.Location]*gp.Location{}}
	head := d.notes.head
	if p.TimeNanos != 0 {
		head.Start = time.Unix(0, p.TimeNanos).UTC()
	}
	head.Duration = time.Duration(p.DurationNanos)
	d.columns = columnsOf(p, d.notes)
	head.Types = d.columns.types
	head.ReadComments()
	d.b = profile.NewBuilder(head)
	for _, t := range d.notes.threads {
		d.b.Thread(t)
	}
	d.trustNotes()
	for _, l := range p.Location {
		d.locations[l] = d.location(l)
	}
	rows := make([]profile.Row, len(p.Sample))
	for i, s := range p.Sample {
		if rows[i], err = d.sample(s); err != nil {
			return nil, fmt.Errorf("sample %d: %w", i, err)
		}
	}
	trusted := d.notes.samples != "" && d.notes.samples == samplesHash(p)
	if trusted && d.notes.locations != nil { // else another tool has numbered them anew
		if err := d.completeRows(rows); err != nil {
			return nil, err
		}
	}
	for i := range rows {
		d.b.Add(rows[i])
	}
	if len(timed) > 0 && trusted {
		unpackTimed(d.b, timed, rows)
	}
	d.noteDropped()
	return d.b.Window(), nil
}

// trustNotes takes the attributes of functions and locations from the notes,
// unless another tool has renumbered the dictionaries since.
func (d *decoder) trustNotes() {
	if d.notes.hash == "" || d.notes.hash != dictionaryHash(d.p) {
		d.notes.locations = nil
		return
	}
	d.functions = make([]attributes, len(d.p.Function)+1)
	for _, f := range d.notes.frames {
		for id := f.first; id <= f.last && id < uint64(len(d.functions)); id++ {
			d.functions[id] = f.attributes
		}
	}
}

func (d *decoder) frames(l *gp.Location) []profile.Frame {
	out := make([]profile.Frame, 0, len(l.Line))
	for i, line := range l.Line {
		f := profile.Frame{Function: line.Function.Name, Linkage: line.Function.SystemName, File: line.Function.Filename,
			Line: int(line.Line), StartLine: int(line.Function.StartLine), Mapping: mappingFile(l.Mapping),
			Kind: kindOf(l.Mapping), Inlined: i < len(l.Line)-1}
		if f.Linkage == f.Function {
			f.Linkage = "" // many tools write the same name twice
		}
		if id := line.Function.ID; id < uint64(len(d.functions)) {
			a := d.functions[id]
			f.Kind, f.Class = a.kind, a.class
			if a.inlined != inlinedByPlace {
				f.Inlined = a.inlined == inlinedYes
			}
			if a.moved {
				f.Mapping = a.mapping
			}
		}
		out = append(out, f)
	}
	return out
}

// location gives the location a pprof location means. It is several where a
// chain of inlined calls has no address of its own to be known by.
func (d *decoder) location(l *gp.Location) []profile.LocationID {
	frames := d.frames(l)
	loc, ok := d.notes.locations[l.ID]
	if !ok {
		loc, ok = inferLocation(l, frames)
	}
	if first, seen := d.taken[loc]; ok && seen && len(frames) > 0 && !slices.EqualFunc(first.Line, l.Line, sameLine) {
		ok = false // one address, different names: tools that put the same address everywhere
	}
	if ok {
		d.taken[loc] = l
		if len(frames) == 0 && mappingFile(l.Mapping) != "" {
			frames = []profile.Frame{profile.Unnamed(loc.Kind, l.Mapping.File, loc.Offset)}
		}
		return []profile.LocationID{d.b.Location(loc, frames...)}
	}
	var ids []profile.LocationID
	for _, f := range frames {
		ids = append(ids, d.b.Named(f))
	}
	return ids
}

func sameLine(a, b gp.Line) bool { return a.Function == b.Function && a.Line == b.Line }

// inferLocation gives the location that address, mapping and names identify;
// false if a chain of inlined calls has nothing but its names.
func inferLocation(l *gp.Location, frames []profile.Frame) (profile.Location, bool) {
	loc := profile.Location{Kind: kindOf(l.Mapping)}
	if len(frames) > 0 {
		loc.Kind = frames[len(frames)-1].Kind
	}
	if m := l.Mapping; m != nil && l.Address != 0 {
		loc.BuildID, loc.Offset = m.BuildID, l.Address-m.Start+m.Offset
		if m.BuildID == "" && m.File != "" {
			loc.BuildID = pathBuildID + m.File
		}
		if loc.BuildID != "" {
			return loc, true
		}
		loc.Offset = 0
	}
	switch len(frames) {
	case 0:
		loc.Name = "0x" + strconv.FormatUint(l.Address, 16)
	case 1:
		f := frames[0]
		loc.Name, loc.File, loc.Line = f.Function, f.File, f.Line
	default:
		return profile.Location{}, false
	}
	return loc, true
}

// kindOf tells kernel code from a process's, where there is a mapping to tell by.
func kindOf(m *gp.Mapping) profile.Kind {
	switch {
	case m == nil || m.File == "" && m.BuildID == "":
		return profile.KindUnknown
	case strings.HasPrefix(m.File, "[kernel") || strings.HasPrefix(m.File, "[guest.kernel") || kernelFile(m.File):
		return profile.KindKernel
	default:
		return profile.KindNative
	}
}

// kernelFile tells the files of a kernel and its modules by their names.
func kernelFile(file string) bool {
	base := file[strings.LastIndexByte(file, '/')+1:]
	return strings.HasPrefix(base, "vmlinux") || strings.HasPrefix(base, "vmlinuz") ||
		strings.HasSuffix(base, ".ko") || strings.Contains(base, ".ko.")
}

// sample gives the row that a pprof sample is.
func (d *decoder) sample(s *gp.Sample) (row profile.Row, err error) {
	var stack []profile.LocationID
	frames := 0
	for _, l := range s.Location {
		stack = append(stack, d.locations[l]...)
		frames += max(1, len(l.Line))
	}
	if frames > maxFrames {
		return row, fmt.Errorf("%d frames: more than %d", frames, maxFrames)
	}
	row.Values = make([]int64, len(d.columns.types))
	for i, c := range d.columns.column {
		row.Values[i] = s.Value[c]
	}
	row.N = 1
	if d.columns.n >= 0 {
		row.N = s.Value[d.columns.n]
	}
	if d.columns.squares >= 0 {
		row.Squares = []float64{math.Ldexp(float64(s.Value[d.columns.squares]), d.columns.scale)}
	}
	end, traced := d.labels(&row, s)
	row.Stack = d.b.Stack(stack, end)
	if traced != (profile.Exemplar{}) {
		traced.Stack, traced.Thread, traced.Context = row.Stack, row.Thread, row.Context
		if len(row.Values) > 0 {
			traced.Value = row.Values[0]
		}
		d.b.AddExemplar(traced)
	}
	return row, nil
}

// labels sets what a sample's labels say. It returns the end of its stack and the trace that
// it belongs to.
func (d *decoder) labels(row *profile.Row, s *gp.Sample) (end profile.End, traced profile.Exemplar) {
	end = d.notes.end
	var t profile.Thread
	var c profile.Context
	for _, key := range slices.Sorted(maps.Keys(s.Label)) {
		value := s.Label[key][0]
		switch key {
		case labelThread, "thread_name", "thread.name", "thread name":
			t.Name = value
		case labelProcess, "process_name", "process.executable.name", "comm":
			t.Process = value
		case labelTrace, "trace id":
			traced.Trace = value
		case labelSpan, "span id":
			traced.Span = value
		case labelEndpoint, "trace endpoint":
			c.Endpoint = value
		case labelInterval:
			c.Interval = value
		case labelReason:
			c.Reason = value
		case labelLabels:
			c.Labels = value
		case labelEnd:
			end = profile.ParseEnd(value)
		default:
			number, err := strconv.ParseInt(value, 10, 64)
			if err != nil || !setNumber(row, &t, key, number) {
				d.dropped[key] = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.NumLabel)) {
		if !setNumber(row, &t, key, s.NumLabel[key][0]) {
			d.dropped[key] = true
		}
	}
	if t.Pruned = profile.NamedPruned(t.Name); t != (profile.Thread{}) {
		row.Thread = d.b.Thread(t)
	}
	row.Context = d.b.Context(c)
	return end, traced
}

func setNumber(row *profile.Row, t *profile.Thread, key string, value int64) bool {
	switch key {
	case labelPID, "process_id", "process.pid":
		t.PID = int(value)
	case labelTID, "thread_id", "thread.id", "thread id":
		t.TID = int(value)
	case labelSlot:
		row.Slot = uint32(value)
	default:
		return false
	}
	return true
}

func (d *decoder) noteDropped() {
	if len(d.dropped) == 0 {
		return
	}
	keys := make([]string, 0, len(d.dropped))
	for k := range d.dropped {
		keys = append(keys, strconv.Quote(k))
	}
	slices.Sort(keys)
	const most = 20 // a hostile file has a different one in each sample
	if len(keys) > most {
		keys = append(keys[:most], "...")
	}
	h := d.b.Head()
	h.Comments = append(h.Comments, "pprof labels left out: "+strings.Join(keys, ", "))
}
