package pprof

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/profile"
)

// timedField holds the samples whose times were kept: bytes, for each sample
//
//	time (ns since the sample before, zig-zag) cpu row weight (zig-zag) delta (zig-zag)
//
// as varints. The row is the number of a pprof sample, which has its stack and
// thread.
const timedField = 7412 // of message Profile

// timed packs the window's timed samples; those on no row cannot be kept.
func (e *encoder) timed() []byte {
	type place struct {
		stack  profile.StackID
		thread profile.ThreadID
	}
	rows := make(map[place]uint64, e.win.Rows.Len())
	for i, r := range e.win.Rows.All() {
		p := place{r.Stack, r.Thread}
		if _, ok := rows[p]; !ok {
			rows[p] = uint64(i)
		}
	}
	var out []byte
	last := time.Duration(0)
	for _, s := range e.win.Samples {
		row, ok := rows[place{s.Stack, s.Thread}]
		if !ok {
			continue
		}
		out = binary.AppendVarint(out, int64(s.Time-last))
		out = binary.AppendUvarint(out, uint64(s.CPU))
		out = binary.AppendUvarint(out, row)
		out = binary.AppendVarint(out, s.Weight)
		out = binary.AppendVarint(out, s.Delta)
		last = s.Time
	}
	return out
}

// unpackTimed adds timed samples to the window; rows gives the place of each pprof
// sample. What is damaged ends the list.
func unpackTimed(b *profile.Builder, data []byte, rows []profile.Row) {
	at := time.Duration(0)
	for len(data) > 0 {
		ok := true
		signed := func() int64 {
			v, n := binary.Varint(data)
			ok = ok && n > 0
			data = data[max(n, 0):]
			return v
		}
		unsigned := func() uint64 {
			v, n := binary.Uvarint(data)
			ok = ok && n > 0
			data = data[max(n, 0):]
			return v
		}
		at += time.Duration(signed())
		cpu, row, weight, delta := unsigned(), unsigned(), signed(), signed()
		if !ok || row >= uint64(len(rows)) {
			return
		}
		r := rows[row]
		b.AddSample(profile.Sample{Time: at, CPU: int(cpu), Thread: r.Thread, Stack: r.Stack, Weight: weight, Delta: delta})
	}
}

// samplesHash names the list of pprof samples that timed samples refer to.
func samplesHash(p *gp.Profile) string {
	h := fnv.New64a()
	var b []byte
	for _, s := range p.Sample {
		b = b[:0]
		for _, l := range s.Location {
			b = binary.AppendUvarint(b, l.ID)
		}
		for _, v := range s.Value {
			b = binary.AppendVarint(b, v)
		}
		h.Write(append(b, 0))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
