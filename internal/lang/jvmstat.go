package lang

import (
	"bytes"
	"encoding/binary"
	"io"
	"path"
	"strings"

	"atys.dev/atys/internal/proc"
)

// Properties of a JVM in its performance data.
const (
	perfVendor  = "java.property.java.vm.vendor"
	perfCommand = "sun.rt.javaCommand" // main class or jar, and arguments
)

const maxPerfData = 1 << 20 // bytes; a JVM has 32 KiB

// jvmProperties reads the performance data that a JVM maps from a file of its
// own, /tmp/hsperfdata_USER/PID, unless it was told not to.
func (d *Detector) jvmProperties(pid int, maps []proc.Mapping) map[string]string {
	for _, m := range maps {
		if m.Backing != proc.BackingFile || !strings.HasPrefix(path.Base(path.Dir(m.Path)), "hsperfdata_") {
			continue
		}
		file, err := d.FS.MapFile(pid, m)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(file, maxPerfData))
		file.Close()
		if err == nil {
			return parsePerfData(data)
		}
	}
	return nil
}

// parsePerfData returns the strings in the performance data of a JVM, version
// 2 of the format, which all since Java 5 write (little-endian here):
//
//	magic ca fe c0 c0 | byte order 1 | major 1 | minor 1 | accessible 1
//	used 4 | overflow 4 | modified 8 | first entry 4 | entries 4
//	entry: length 4 | name 4 | elements 4 | type 1 | flags 1 | unit 1 | variability 1 | data 4
//	       with name and data as offsets into the entry
func parsePerfData(data []byte) map[string]string {
	const header, entryHeader = 32, 20
	if len(data) < header || !bytes.Equal(data[:6], []byte{0xca, 0xfe, 0xc0, 0xc0, 1, 2}) {
		return nil
	}
	word := func(b []byte, at int) uint64 { return uint64(binary.LittleEndian.Uint32(b[at:])) }
	at, entries := word(data, 24), word(data, 28)
	values := map[string]string{}
	for ; entries > 0 && at+entryHeader <= uint64(len(data)); entries-- {
		entry := data[at:]
		length := word(entry, 0)
		if length < entryHeader || length > uint64(len(entry)) {
			break
		}
		entry = entry[:length]
		name, value, elements := word(entry, 4), word(entry, 16), word(entry, 8)
		if entry[12] == 'B' && elements > 0 && name < length && value < length {
			text := entry[value:]
			text = text[:min(elements, uint64(len(text)))]
			values[untilNUL(entry[name:])] = untilNUL(text)
		}
		at += length
	}
	return values
}

func untilNUL(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
