package symbol

import (
	"encoding/binary"
	"sort"
	"strconv"
)

// A functions table is what gatherSpans found, in the form it is kept in memory
// and on disk. All numbers are 32 bits, little-endian:
//
//	+-------+---------------------------------+--------------------+
//	| count | count x (start, end, name)      | strings            |
//	+-------+---------------------------------+--------------------+
//
// Start and end are file offsets, sorted, not overlapping. A name is an offset
// into the strings, where a uvarint length precedes the bytes.
//
// Readers of tables take them as foreign bytes: whatever a number says, they
// give an empty answer at worst.
type functionsTable []byte

const (
	functionBytes = 12
	// maxNameBytes bounds the names of a table: symbols may share one long name, which
	// is copied for each. Chromium, the largest program we know of, has some 200 MB.
	maxNameBytes = 256 << 20
)

// encodeFunctions makes a table. Functions behind the bound of names keep where they
// start instead: samples of them are counted as code without a name, by file.
func encodeFunctions(spans []span) functionsTable {
	size, names := 4, 0
	for i := range spans {
		s := &spans[i]
		if names += len(s.name); names > maxNameBytes {
			s.name = namelessMark + strconv.FormatUint(uint64(s.start), 16)
		}
		size += functionBytes + binary.MaxVarintLen16 + len(s.name)
	}
	t := make([]byte, 4, size)
	binary.LittleEndian.PutUint32(t, uint32(len(spans)))
	at := uint32(0)
	for _, s := range spans {
		t = binary.LittleEndian.AppendUint32(t, s.start)
		t = binary.LittleEndian.AppendUint32(t, s.end)
		t = binary.LittleEndian.AppendUint32(t, at)
		at += uint32(len(binary.AppendUvarint(nil, uint64(len(s.name)))) + len(s.name))
	}
	for _, s := range spans { // few names stand twice: finding those would cost more than they take
		t = binary.AppendUvarint(t, uint64(len(s.name)))
		t = append(t, s.name...)
	}
	return t
}

func (t functionsTable) count() int {
	return min(int(u32(t, 0)), max(len(t)-4, 0)/functionBytes)
}

// lookup finds the linker name of the function that covers a file offset.
func (t functionsTable) lookup(off uint32) (name string, ok bool) {
	n := t.count()
	i := sort.Search(n, func(i int) bool { return u32(t, 4+i*functionBytes) > off }) - 1
	if i < 0 || off >= u32(t, 4+i*functionBytes+4) {
		return "", false
	}
	name = stringAt(t[4+n*functionBytes:], u32(t, 4+i*functionBytes+8))
	return name, name != ""
}

// u32 reads the number at a place, 0 outside.
func u32(data []byte, at int) uint32 {
	if at < 0 || at+4 > len(data) {
		return 0
	}
	return binary.LittleEndian.Uint32(data[at:])
}

// stringWriter collects strings, each once.
type stringWriter struct {
	data  []byte
	index map[string]uint32
}

func (w *stringWriter) add(s string) uint32 {
	if at, ok := w.index[s]; ok {
		return at
	}
	if w.index == nil {
		w.index = map[string]uint32{}
	}
	at := uint32(len(w.data))
	w.index[s] = at
	w.data = binary.AppendUvarint(w.data, uint64(len(s)))
	w.data = append(w.data, s...)
	return at
}

func stringAt(data []byte, at uint32) string {
	if int64(at) >= int64(len(data)) {
		return ""
	}
	data = data[at:]
	n, k := binary.Uvarint(data)
	if k <= 0 || n > uint64(len(data)-k) {
		return ""
	}
	return string(data[k : k+int(n)])
}
