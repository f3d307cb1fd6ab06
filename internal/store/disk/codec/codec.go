// Package codec encodes and decodes what package disk stores.
//
//	codec.go     numbers, texts, words, locations, labels
//	blocks.go    columns of numbers
//	window.go    a window, in its current version and in those before
//	rows.go      its rows, and variance.go their variances
//	columns.go   as much of a window as merges and roll-ups read
package codec

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// Writer appends encoded values.
type Writer []byte

func (w *Writer) Number(n uint64) { *w = binary.AppendUvarint(*w, n) }
func (w *Writer) Signed(n int64)  { *w = binary.AppendVarint(*w, n) }

func (w *Writer) Text(s string) {
	w.Number(uint64(len(s)))
	*w = append(*w, s...)
}

// words are the texts that most heads of windows consist of. A word is encoded as its number
// or, if it is not listed, as 0 and its text: as texts, they took seventy bytes of a window of
// a kilobyte. Append new ones only.
var words = []string{"", "cpu", "nanoseconds", "count", string(profile.DesignRandomised), string(profile.DesignCensus),
	"sum_exec_runtime, split by utime:stime", "schedstat", "CPU clocks of its processes",
	"auto", "atys", "began", "changed", "returned", "steady", "stays", "few", profile.ByServer, profile.ByAgent, profile.ByBudget,
	"none", string(profile.BaseWall), string(profile.BaseRunQueue), string(profile.BaseBytes), "off-cpu", "waits", profile.EncodingJSON}

// otherWord stands for a word that a later version has added.
const otherWord = "other"

func (w *Writer) Word(s string) {
	if i := slices.Index(words, s); i >= 0 {
		w.Number(uint64(i) + 1)
		return
	}
	w.Number(0)
	w.Text(s)
}

func (w *Writer) flag(b bool) {
	if b {
		w.Number(1)
	} else {
		w.Number(0)
	}
}

func (w *Writer) exact(e profile.Exact) {
	w.Signed(int64(e.CPU))
	w.Signed(int64(e.User))
	w.Signed(int64(e.System))
	w.Word(e.Source)
	more := e.Wall != 0 || e.RunQueue != 0 || e.Bytes != 0
	flags := uint64(0)
	if e.IncludesInterrupt {
		flags |= exactInterrupt
	}
	if more {
		flags |= exactMore
	}
	if w.Number(flags); more {
		w.Signed(int64(e.Wall))
		w.Signed(int64(e.RunQueue))
		w.Signed(e.Bytes)
	}
}

// Flags of exact totals.
const (
	exactInterrupt = 1 << iota // interrupt time is part of them
	exactMore                  // totals other than CPU time follow
)

// rate encodes a rate. The bits of its number are reversed: round numbers end in zeros, which
// then take no bytes.
func (w *Writer) rate(r profile.Rate) {
	w.Number(bits.ReverseBytes64(math.Float64bits(r.Hertz)))
	w.Word(r.Policy)
	w.Word(r.Reason)
	w.Text(r.Why)
	w.Word(r.By)
}

// Reader decodes values. Files can be damaged: a value that is missing or impossible is read
// as zero, and sets Bad.
type Reader struct {
	Data []byte
	Bad  bool
}

func (r *Reader) Number() uint64 {
	n, size := binary.Uvarint(r.Data)
	r.skip(size)
	return n // 0 where there is none
}

func (r *Reader) Signed() int64 {
	n, size := binary.Varint(r.Data)
	r.skip(size)
	return n // 0 where there is none
}

// skip goes over a number that was read, unless that failed.
func (r *Reader) skip(size int) {
	if size <= 0 {
		r.Bad, r.Data = true, nil
		return
	}
	r.Data = r.Data[size:]
}

// Small reads a number of at most the given number of bits.
func (r *Reader) Small(bits int) uint64 {
	n := r.Number()
	if n>>bits != 0 {
		r.Bad = true
		return 0
	}
	return n
}

// length reads the number of entries that follow, each of which takes at least a byte.
func (r *Reader) length() int {
	n := r.Number()
	if n > uint64(len(r.Data)) {
		r.Bad, r.Data = true, nil
		return 0
	}
	return int(n)
}

// zeros is what Bytes returns if the data ends too early.
var zeros [64]byte

func (r *Reader) Bytes(n int) []byte {
	if n > len(r.Data) {
		r.Bad, r.Data = true, nil
		return zeros[:min(n, len(zeros))]
	}
	b := r.Data[:n]
	r.Data = r.Data[n:]
	return b
}

func (r *Reader) Text() string {
	n := r.length()
	if r.Bad {
		return ""
	}
	return string(r.Bytes(n))
}

func (r *Reader) Word() string {
	n := r.Number()
	switch {
	case n == 0:
		return r.Text()
	case n > uint64(len(words)): // a later version has added it
		return otherWord
	}
	return words[n-1]
}

func (r *Reader) flag() bool { return r.Small(1) == 1 }

func (r *Reader) Duration() time.Duration { return time.Duration(r.Signed()) }

func (r *Reader) exact() profile.Exact {
	e := profile.Exact{CPU: r.Duration(), User: r.Duration(), System: r.Duration(), Source: r.Word()}
	flags := r.Small(2)
	e.IncludesInterrupt = flags&exactInterrupt != 0
	if flags&exactMore != 0 {
		e.Wall, e.RunQueue, e.Bytes = r.Duration(), r.Duration(), r.Signed()
	}
	return e
}

func (r *Reader) rate() profile.Rate {
	return profile.Rate{Hertz: math.Float64frombits(bits.ReverseBytes64(r.Number())), Policy: r.Word(), Reason: r.Word(), Why: r.Text(), By: r.Word()}
}

func (w *Writer) Location(l profile.Location) {
	w.Number(uint64(l.Kind))
	w.Text(l.BuildID)
	w.Number(l.Offset)
	w.Text(l.Name)
	w.Text(l.File)
	w.Number(uint64(l.Line))
}

func (r *Reader) Location() profile.Location {
	return profile.Location{Kind: profile.Kind(r.Small(8)), BuildID: r.Text(), Offset: r.Number(), Name: r.Text(), File: r.Text(), Line: int(r.Small(31))}
}

func (w *Writer) Frames(frames []profile.Frame) {
	w.Number(uint64(len(frames)))
	for _, f := range frames {
		w.Text(f.Function)
		w.Text(f.Linkage)
		w.Text(f.File)
		w.Number(uint64(f.Line))
		w.Number(uint64(f.StartLine))
		w.Text(f.Mapping)
		w.Number(uint64(f.Kind))
		w.Number(uint64(f.Class))
		w.flag(f.Inlined)
	}
}

func (r *Reader) Frames() (frames []profile.Frame) {
	for n := r.length(); n > 0 && !r.Bad; n-- {
		frames = append(frames, profile.Frame{Function: r.Text(), Linkage: r.Text(), File: r.Text(), Line: int(r.Small(31)), StartLine: int(r.Small(31)),
			Mapping: r.Text(), Kind: profile.Kind(r.Small(8)), Class: profile.Class(r.Small(8)), Inlined: r.flag()})
	}
	return frames
}

func (w *Writer) Labels(l profile.Labels, sorted []string) {
	w.Number(uint64(len(sorted)))
	for _, name := range sorted {
		w.Text(name)
		w.Text(l[name])
	}
}

func (r *Reader) Labels() profile.Labels {
	l := profile.Labels{}
	for n := r.length(); n > 0 && !r.Bad; n-- {
		name := r.Text()
		l[name] = r.Text()
	}
	return l
}

// Fixed reads a number in the fixed-width encoding of keys.
func (r *Reader) Fixed() uint32 { return binary.BigEndian.Uint32(r.Bytes(4)) }
