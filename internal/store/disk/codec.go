package disk

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// writer appends what is kept.
type writer []byte

func (w *writer) number(n uint64) { *w = binary.AppendUvarint(*w, n) }
func (w *writer) signed(n int64)  { *w = binary.AppendVarint(*w, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	*w = append(*w, s...)
}

// words are what heads of windows mostly say. A word is its number, or 0 and its
// text: of a window of a kilobyte, texts were seventy bytes. New ones go to the
// end.
var words = []string{"", "cpu", "nanoseconds", "count", string(profile.DesignRandomised), string(profile.DesignCensus),
	"sum_exec_runtime, split by utime:stime", "schedstat", "CPU clocks of its processes",
	"auto", "atys", "began", "changed", "returned", "steady", "stays", "few", profile.ByServer, profile.ByAgent, profile.ByBudget,
	"none", string(profile.BaseWall), string(profile.BaseRunQueue), string(profile.BaseBytes), "off-cpu", "waits", profile.EncodingJSON}

// otherWord is read for a word of a later version.
const otherWord = "other"

func (w *writer) word(s string) {
	if i := slices.Index(words, s); i >= 0 {
		w.number(uint64(i) + 1)
		return
	}
	w.number(0)
	w.text(s)
}

func (w *writer) flag(b bool) {
	if b {
		w.number(1)
	} else {
		w.number(0)
	}
}

func (w *writer) exact(e profile.Exact) {
	w.signed(int64(e.CPU))
	w.signed(int64(e.User))
	w.signed(int64(e.System))
	w.word(e.Source)
	more := e.Wall != 0 || e.RunQueue != 0 || e.Bytes != 0
	flags := uint64(0)
	if e.IncludesInterrupt {
		flags |= exactInterrupt
	}
	if more {
		flags |= exactMore
	}
	if w.number(flags); more {
		w.signed(int64(e.Wall))
		w.signed(int64(e.RunQueue))
		w.signed(e.Bytes)
	}
}

// Flags of exact totals.
const (
	exactInterrupt = 1 << iota // interrupt time is part of them
	exactMore                  // totals other than CPU time follow
)

// rate has its number turned around: of one that is round the last bits are none.
func (w *writer) rate(r profile.Rate) {
	w.number(bits.ReverseBytes64(math.Float64bits(r.Hertz)))
	w.word(r.Policy)
	w.word(r.Reason)
	w.text(r.Why)
	w.word(r.By)
}

// reader reads it again. What is not there or cannot be is zero, and makes the
// whole bad: files can be damaged.
type reader struct {
	data    []byte
	bad     bool
	version uint64 // of the window; see readVersion
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.data)
	if size <= 0 {
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[size:]
	return n
}

func (r *reader) signed() int64 {
	n, size := binary.Varint(r.data)
	if size <= 0 {
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[size:]
	return n
}

// small reads a number that fits in so many bits.
func (r *reader) small(bits int) uint64 {
	n := r.number()
	if n>>bits != 0 {
		r.bad = true
		return 0
	}
	return n
}

// length reads how many entries follow: each takes a byte at least.
func (r *reader) length() int {
	n := r.number()
	if n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return 0
	}
	return int(n)
}

// zeros is what bytes gives of data that ends too early.
var zeros [64]byte

func (r *reader) bytes(n int) []byte {
	if n > len(r.data) {
		r.bad, r.data = true, nil
		return zeros[:min(n, len(zeros))]
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) text() string {
	n := r.length()
	if r.bad {
		return ""
	}
	return string(r.bytes(n))
}

func (r *reader) word() string {
	n := r.number()
	switch {
	case n == 0:
		return r.text()
	case n > uint64(len(words)): // which a later version knows
		return otherWord
	}
	return words[n-1]
}

func (r *reader) flag() bool { return r.small(1) == 1 }

func (r *reader) duration() time.Duration { return time.Duration(r.signed()) }

func (r *reader) exact() profile.Exact {
	e := profile.Exact{CPU: r.duration(), User: r.duration(), System: r.duration(), Source: r.word()}
	flags := r.small(2)
	e.IncludesInterrupt = flags&exactInterrupt != 0
	if flags&exactMore != 0 {
		e.Wall, e.RunQueue, e.Bytes = r.duration(), r.duration(), r.signed()
	}
	return e
}

func (r *reader) rate() profile.Rate {
	return profile.Rate{Hertz: math.Float64frombits(bits.ReverseBytes64(r.number())), Policy: r.word(), Reason: r.word(), Why: r.text(), By: r.word()}
}

func (w *writer) location(l profile.Location) {
	w.number(uint64(l.Kind))
	w.text(l.BuildID)
	w.number(l.Offset)
	w.text(l.Name)
	w.text(l.File)
	w.number(uint64(l.Line))
}

func (r *reader) location() profile.Location {
	return profile.Location{Kind: profile.Kind(r.small(8)), BuildID: r.text(), Offset: r.number(), Name: r.text(), File: r.text(), Line: int(r.small(31))}
}

func (w *writer) frames(frames []profile.Frame) {
	w.number(uint64(len(frames)))
	for _, f := range frames {
		w.text(f.Function)
		w.text(f.Linkage)
		w.text(f.File)
		w.number(uint64(f.Line))
		w.number(uint64(f.StartLine))
		w.text(f.Mapping)
		w.number(uint64(f.Kind))
		w.number(uint64(f.Class))
		w.flag(f.Inlined)
	}
}

func (r *reader) frames() (frames []profile.Frame) {
	for n := r.length(); n > 0 && !r.bad; n-- {
		frames = append(frames, profile.Frame{Function: r.text(), Linkage: r.text(), File: r.text(), Line: int(r.small(31)), StartLine: int(r.small(31)),
			Mapping: r.text(), Kind: profile.Kind(r.small(8)), Class: profile.Class(r.small(8)), Inlined: r.flag()})
	}
	return frames
}

func (w *writer) labels(l profile.Labels, sorted []string) {
	w.number(uint64(len(sorted)))
	for _, name := range sorted {
		w.text(name)
		w.text(l[name])
	}
}

func (r *reader) labels() profile.Labels {
	l := profile.Labels{}
	for n := r.length(); n > 0 && !r.bad; n-- {
		name := r.text()
		l[name] = r.text()
	}
	return l
}

// fixed reads a number as keys have it.
func (r *reader) fixed() uint32 { return binary.BigEndian.Uint32(r.bytes(4)) }
