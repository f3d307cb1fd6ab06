// Package perfscript reads what `perf script` prints: samples as text, in the common choices of fields.
//
//	shop 4021/4030 [001] 1462.965050:   10101010 cpu-clock:u:
//		    7f5d418d99a1 __random+0x21 (/usr/lib/libc.so.6)
//		ffffffff821f8b58 __schedule+0x618 ([kernel.kallsyms])
//
// Lines flow through header or frame (line.go) into samples, samples into rows
// once all events of the file are known. docs/format/perfscript.md says what is
// understood and what is lost.
package perfscript

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// Bounds on what one line or sample may make us allocate: deeper stacks come
// from no profiler, and trees are walked recursively.
const (
	maxLine   = 1 << 20
	maxFrames = 1 << 16
	maxEvents = 1 << 8
)

// Read reads the text of perf script. Each event becomes a value type, the
// first one (of the header's list, else the first seen) is the main one: rows
// count its samples. Lines that are not
// understood are counted in a comment; a file with no sample in it is an error.
func Read(r io.Reader) (*profile.Window, error) {
	p := &parser{
		b:         profile.NewBuilder(profile.Head{}),
		locations: map[string]profile.LocationID{},
		processes: map[int]string{},
	}
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	for in.Scan() {
		p.number++
		if err := p.line(in.Bytes()); err != nil {
			return nil, fmt.Errorf("read perf script: line %d: %w", p.number, err)
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read perf script: line %d: longer than %d MB", p.number+1, maxLine>>20)
	} else if err != nil {
		return nil, fmt.Errorf("read perf script: %w", err)
	}
	p.finish()
	if len(p.samples) == 0 {
		if p.strange > 0 {
			return nil, fmt.Errorf("read perf script: no samples in it: line %d is %s", p.strangeLine, p.strangeText)
		}
		return nil, errors.New("read perf script: no samples in it")
	}
	return p.window(), nil
}

// sample is one sample as printed; rows can be made only when all are known.
type sample struct {
	header
	event  int
	weight int64
	stack  profile.StackID
}

// begin is where the time begins that a sample stands for: with a clock, its
// weight before it was taken. A weight of hours is a counter's, not a clock's.
func (s sample) begin(e event) time.Duration {
	if e.Unit == "nanoseconds" && s.weight < int64(time.Minute) {
		return s.time - time.Duration(s.weight)
	}
	return s.time
}

type event struct {
	profile.ValueType
	first  int64 // weight of its first sample
	varies bool
}

type parser struct {
	b         *profile.Builder
	locations map[string]profile.LocationID // by a frame's text without its address
	processes map[int]string                // names of main threads
	events    []event
	samples   []sample

	open   bool // between a header and the blank line after its frames
	header header
	stack  []profile.LocationID
	queue  []frame // inlined frames, until the one they are inlined into; or one that a source line may follow

	number, strange, strangeLine int
	strangeText                  string
	comments                     []string
	listed                       []string // names of events, as a header lists them
}

func (p *parser) line(line []byte) error {
	line = bytes.TrimRight(line, " \t\r")
	indented := len(line) > 0 && (line[0] == ' ' || line[0] == '\t')
	text := bytes.TrimLeft(line, " \t")
	switch {
	case len(text) == 0:
		p.finish()
		return nil
	case !p.open && line[0] == '#':
		p.comment(string(text))
		return nil
	case p.record(text):
		return nil
	case line[0] == '\t' && p.frame(text):
		return p.bound()
	}
	if h, ok := parseHeader(string(text), p.open); ok {
		p.finish()
		p.open, p.header = true, h
		if f, ok := parseFrame([]byte(h.rest)); ok && !strings.Contains(h.event, ":") {
			p.push(f)
		}
		return nil
	}
	if indented && (p.frame(text) || p.open && p.source(string(text))) {
		return p.bound()
	}
	if p.strange++; p.strange == 1 {
		p.strangeLine, p.strangeText = p.number, profile.Excerpt(text)
	}
	return nil
}

func (p *parser) bound() error {
	if len(p.stack)+len(p.queue) > maxFrames {
		return fmt.Errorf("more than %d frames", maxFrames)
	}
	return nil
}

// comment keeps the lines of perf script --header that tell where a file is from.
func (p *parser) comment(text string) {
	key, value, ok := strings.Cut(strings.TrimLeft(text, "# "), ":")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !ok || value == "" {
		return
	}
	switch key {
	case "event":
		if _, name, ok := strings.Cut(value, "name = "); ok && len(p.listed) < maxEvents {
			name, _, _ = strings.Cut(name, ",")
			p.listed = append(p.listed, name)
		}
	case "captured on", "hostname", "os release", "cpudesc", "cmdline":
		p.comments = append(p.comments, "perf "+key+": "+value)
	}
}

// record takes a line of --show-lost-events and its like, which have no sample.
func (p *parser) record(text []byte) bool {
	i := bytes.Index(text, []byte("PERF_RECORD_"))
	if i < 0 || i > 0 && text[i-1] != ' ' {
		return false
	}
	p.finish()
	if fields := strings.Fields(string(text[i:])); strings.HasPrefix(fields[0], "PERF_RECORD_LOST") {
		for j, f := range fields[:len(fields)-1] {
			if n, ok := parseNumber(fields[j+1]); ok && f == "lost" {
				p.b.Head().AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "perf's ring buffer was full", N: n})
			}
		}
	}
	return true
}

// frame takes a line as a frame of the open sample, or of one without a header.
func (p *parser) frame(text []byte) bool {
	f, ok := parseFrame(text)
	if ok {
		if !p.open {
			p.open, p.header = true, header{}
		}
		p.push(f)
	}
	return ok
}

// push queues a frame: what it is may depend on the line that follows.
func (p *parser) push(f frame) {
	if n := len(p.queue); n > 0 && !p.queue[n-1].inlined {
		p.flush()
	}
	p.queue = append(p.queue, f)
}

// source takes a line of the srcline field: it belongs to the frame before it.
func (p *parser) source(text string) bool {
	n := len(p.queue)
	if n == 0 {
		return false
	}
	file, number, ok := cutLast(text, ":")
	if !ok {
		// Without a source, perf repeats symbol+offset or gives file[address].
		return strings.HasPrefix(text, p.queue[n-1].symbol) || strings.HasSuffix(text, "]")
	}
	number, _, _ = strings.Cut(number, " ") // a discriminator may follow
	line, ok := parseNumber(number)
	if ok && file != "??" && line > 0 && line <= math.MaxInt32 {
		p.queue[n-1].file, p.queue[n-1].line = file, int(line)
	}
	return ok
}

// flush moves the queue to the stack: inlined frames and the one they are in.
func (p *parser) flush() {
	if len(p.queue) == 0 {
		return
	}
	physical := p.queue[len(p.queue)-1]
	for _, f := range p.queue {
		if f.inlined {
			f.dso, f.kernel = physical.dso, physical.kernel
		}
		p.stack = append(p.stack, p.location(f))
	}
	p.queue = p.queue[:0]
}

func (p *parser) location(f frame) profile.LocationID {
	if id, ok := p.locations[f.text]; ok && f.line == 0 && !f.inlined {
		return id
	}
	named := f.named()
	loc := profile.Location{Kind: named.Kind, Name: named.Function, File: named.File, Line: named.Line}
	if loc.File == "" {
		loc.File = named.Mapping // the same name in two binaries is two functions
	}
	if named.Inlined {
		loc.Name += " (inlined)" // elsewhere it may be a function of its own
	}
	id := p.b.Location(loc, named)
	if f.line == 0 && !f.inlined {
		p.locations[f.text] = id
	}
	return id
}

// finish closes the open sample.
func (p *parser) finish() {
	if !p.open {
		return
	}
	p.flush()
	s := sample{header: p.header, stack: p.b.Stack(p.stack, profile.EndUnknown)}
	s.event, s.weight = p.eventOf(p.header)
	s.rest = ""
	p.samples = append(p.samples, s)
	if s.pid != 0 && s.pid == s.tid {
		p.processes[s.pid] = s.comm
	}
	p.open, p.header, p.stack = false, header{}, p.stack[:0]
}

// eventOf finds or adds a sample's event, and gives the weight in its unit.
func (p *parser) eventOf(h header) (index int, weight int64) {
	t := valueType(h)
	weight = 1
	if h.period > 0 {
		weight = h.period
	}
	for i := range p.events {
		if e := &p.events[i]; e.Kind == t.Kind && (e.Unit == t.Unit || i == maxEvents-1) {
			e.varies = e.varies || e.first != weight
			return i, weight
		}
	}
	if len(p.events) == maxEvents { // no machine counts as many at once
		return maxEvents - 1, weight
	}
	p.events = append(p.events, event{ValueType: t, first: weight})
	return len(p.events) - 1, weight
}

// valueType names what an event measures: clocks in ns, all else counts.
func valueType(h header) profile.ValueType {
	switch name := withoutModifiers(h.event); {
	case name == "":
		return profile.ValueType{Kind: "samples", Unit: "count"}
	case name == "cpu-clock" && h.period > 0:
		return profile.CPUTime(0)
	case name == "task-clock" && h.period > 0:
		return profile.ValueType{Kind: "task-clock", Unit: "nanoseconds"}
	default:
		return profile.ValueType{Kind: name, Unit: "count"}
	}
}

// orderEvents puts events in the order perf was asked for them, where a header
// tells it, else in the order seen. It gives each event's new place.
func (p *parser) orderEvents() (place []int) {
	asked := func(e event) int {
		i := slices.IndexFunc(p.listed, func(name string) bool {
			return valueType(header{event: name, period: 1}).Kind == e.Kind
		})
		if i < 0 {
			return len(p.listed)
		}
		return i
	}
	order := make([]int, len(p.events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(asked(p.events[a]), asked(p.events[b])) })
	place = make([]int, len(order))
	events := make([]event, len(order))
	for to, from := range order {
		place[from], events[to] = to, p.events[from]
	}
	p.events = events
	return place
}

// window folds the samples into rows.
func (p *parser) window() *profile.Window {
	place := p.orderEvents()
	h := p.b.Head()
	for _, e := range p.events {
		if !e.varies {
			e.Period = e.first
		}
		h.Types = append(h.Types, e.ValueType)
	}
	h.Comments = p.comments
	if p.strange > 0 {
		h.Comments = append(h.Comments, fmt.Sprintf("perf script: %d lines were not understood, the first is line %d: %s",
			p.strange, p.strangeLine, p.strangeText))
	}
	start, end := time.Duration(math.MaxInt64), time.Duration(0)
	for _, s := range p.samples {
		if s.timed {
			start, end = min(start, s.begin(p.events[place[s.event]])), max(end, s.time)
		}
	}
	h.Duration = max(0, end-start)
	values := make([]int64, len(p.events))
	for _, s := range p.samples {
		event := place[s.event]
		clear(values)
		values[event] = s.weight
		row := profile.Row{Stack: s.stack, Values: values}
		if s.comm != "" || s.tid != 0 {
			row.Thread = p.b.Thread(profile.Thread{PID: s.pid, TID: s.tid, Process: p.processes[s.pid], Name: s.comm})
		}
		if event == 0 {
			row.N, row.Squares = 1, []float64{float64(s.weight) * float64(s.weight)}
		}
		p.b.Add(row)
		if s.timed && event == 0 {
			p.b.AddSample(profile.Sample{Time: s.time - start, CPU: s.cpu, Thread: row.Thread, Stack: s.stack, Weight: s.weight})
		}
	}
	return p.b.Window()
}
