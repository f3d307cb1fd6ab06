package symbol

import (
	"cmp"
	"slices"
	"sort"

	"atys.dev/atys/internal/profile"
)

// jitTable holds code that a runtime compiled while running, by address, as
// the runtime tells of it: memory is used again, and what was told last wins.
type jitTable struct {
	entries []jitEntry // sorted by start, not overlapping
	recent  []jitEntry // the same of what came later and wins over entries
	fresh   []jitEntry // told and not sorted yet
	seq     int
}

// jitEntry is one piece of code.
type jitEntry struct {
	start, end uint64
	name       string
	lines      []jitLine // by address; none where the runtime does not tell
	moved      uint64    // how far the code has gone since its lines were told
	seq        int
}

const (
	maxCode  = 1 << 20 // pieces of code of one process; what comes then is not named
	maxFresh = 1 << 18 // sorted in at once: many that overlap become few
)

// jitLine is where in the source the code from an address on comes from.
type jitLine struct {
	address uint64
	file    string
	line    int
}

// add takes what the runtime tells next; settle makes it known.
func (t *jitTable) add(e jitEntry) {
	if len(t.fresh) >= maxFresh {
		t.settle()
	}
	if len(t.entries)+len(t.recent)+len(t.fresh) >= maxCode {
		return
	}
	t.seq++
	e.seq = t.seq
	t.fresh = append(t.fresh, e)
}

// frame names an address, as of the last settle.
func (t *jitTable) frame(address uint64) (profile.Frame, bool) {
	for _, entries := range [][]jitEntry{t.recent, t.entries} {
		i := sort.Search(len(entries), func(i int) bool { return entries[i].start > address }) - 1
		if i < 0 || address >= entries[i].end {
			continue
		}
		f := profile.Frame{Function: entries[i].name, Kind: profile.KindJIT, Mapping: "[jit]"}
		lines := entries[i].lines
		told := address - entries[i].moved
		if at := sort.Search(len(lines), func(i int) bool { return lines[i].address > told }) - 1; at >= 0 {
			f.File, f.Line = lines[at].file, lines[at].line
		}
		return f, true
	}
	return profile.Frame{}, false
}

// settle sorts fresh lines in. Memory is used again: where lines overlap the later
// one is right, and of the earlier one only what it leaves. All is sorted anew
// only when the recent ones are many: a large map grows by a few lines a second.
func (t *jitTable) settle() {
	if len(t.fresh) == 0 {
		return
	}
	t.recent = latest(append(t.recent, t.fresh...))
	t.fresh = nil
	if len(t.recent) > len(t.entries)/4 {
		t.entries = latest(append(t.entries, t.recent...))
		t.recent = nil
	}
}

// latest cuts entries so that none overlap, the highest seq winning.
func latest(all []jitEntry) []jitEntry {
	slices.SortFunc(all, func(a, b jitEntry) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.seq, a.seq))
	})
	var out []jitEntry
	var open entryHeap // entries begun, the latest line on top
	at := uint64(0)
	emitTo := func(to uint64) {
		for at < to && open.discardEnded(at) {
			top := open[0]
			end := min(top.end, to)
			if n := len(out); n > 0 && out[n-1].seq == top.seq && out[n-1].end == at {
				out[n-1].end = end
			} else {
				piece := top
				piece.start, piece.end = at, end
				out = append(out, piece)
			}
			at = end
		}
		at = to
	}
	for _, e := range all {
		emitTo(e.start)
		open.push(e)
	}
	emitTo(^uint64(0))
	return out
}

// entryHeap is a heap of entries, the one with the highest seq first.
type entryHeap []jitEntry

func (h *entryHeap) push(e jitEntry) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if s[parent].seq >= s[i].seq {
			break
		}
		s[parent], s[i] = s[i], s[parent]
		i = parent
	}
}

// discardEnded removes from the top what ends at or before a place; false when
// nothing is left.
func (h *entryHeap) discardEnded(at uint64) bool {
	for len(*h) > 0 && (*h)[0].end <= at {
		s := *h
		last := len(s) - 1
		s[0] = s[last]
		s = s[:last]
		for i := 0; ; {
			child := 2*i + 1
			if child >= len(s) {
				break
			}
			if child+1 < len(s) && s[child+1].seq > s[child].seq {
				child++
			}
			if s[i].seq >= s[child].seq {
				break
			}
			s[i], s[child] = s[child], s[i]
			i = child
		}
		*h = s
	}
	return len(*h) > 0
}
