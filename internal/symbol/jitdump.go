package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// JITDump names code that a runtime compiled while running, from the file of
// records that runtimes write for "perf inject": code as it is made and moved,
// with its lines. It is not safe for concurrent use.
type JITDump struct {
	growing
	code jitTable
	made map[uint64]jitEntry // by the number that the runtime gives its code
	next []jitLine           // lines come before the code that they belong to

	names, lines int // bytes taken of each
}

// Layout of a dump: a header, then records, each with a head of its own.
const (
	dumpMagic    = 0x4A695444 // "JiTD" read as a number
	dumpHeadSize = 40
	recordHead   = 16

	recordLoad  = 0
	recordMove  = 1
	recordLines = 2

	maxDumpName  = 1 << 12 // of a function, with its record's other fields
	maxDumpLines = 1 << 20 // bytes of one record of lines
	maxDumpCode  = 1 << 20 // pieces of code of one process
	maxRecords   = 1 << 17 // of one Refresh; the next goes on

	// What one process may tell. A long-running node tells some 40 MB of names;
	// of lines three times as many bytes are kept.
	maxAllNames = 1 << 27
	maxAllLines = 1 << 25
)

// sameFile stands for the file of the line before.
const sameFile = "\xff"

var errNoDump = errors.New("no dump of compiled code is mapped")

// FindJITDump finds the dump of a process: runtimes map a page of it as code, so
// that profilers find it.
func FindJITDump(fs proc.FS, procRoot string, pid int) (*JITDump, error) {
	mappings, err := fs.Maps(pid)
	if err != nil {
		return nil, err
	}
	for _, m := range mappings {
		if IsJITDump(m) {
			d := NewJITDump(m.Path)
			d.file.root = fmt.Sprintf("%s/%d/root", procRoot, pid)
			d.file.check = func(info os.FileInfo) error { return writtenBy(fs, pid, info) }
			return d, nil
		}
	}
	return nil, errNoDump
}

// IsJITDump tells the page of a dump that runtimes map as code.
func IsJITDump(m proc.Mapping) bool {
	name := m.Path[strings.LastIndexByte(m.Path, '/')+1:]
	return m.Executable() && strings.HasPrefix(name, "jit-") && strings.HasSuffix(name, ".dump")
}

// NewJITDump names code by the dump at a path.
func NewJITDump(path string) *JITDump { return newJITDump(growing{file: untrusted{path: path}}) }

func newJITDump(file growing) *JITDump {
	return &JITDump{growing: file, made: map[uint64]jitEntry{}}
}

// Frame names an address, as of the last Refresh.
func (d *JITDump) Frame(address uint64) (profile.Frame, bool) { return d.code.frame(address) }

// Refresh reads the records that were appended since the last time. A file that
// was replaced or shortened is read anew.
func (d *JITDump) Refresh() error {
	f, anew, err := d.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if anew {
		*d = *newJITDump(d.growing)
	}
	defer d.code.settle()
	if d.read == 0 {
		if d.read, err = readDumpHead(f); err != nil {
			return fmt.Errorf("read %q: %w", d.file, err)
		}
	}
	for range maxRecords {
		size, err := d.record(f)
		if errors.Is(err, io.EOF) { // still being written
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %q at %d: %w", d.file, d.read, err)
		}
		d.read += size
	}
	return nil
}

// readDumpHead checks the header and gives its size.
func readDumpHead(r io.ReaderAt) (int64, error) {
	var head [dumpHeadSize]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) {
		return 0, fmt.Errorf("no dump of compiled code: %w", err)
	}
	if binary.LittleEndian.Uint32(head[:]) != dumpMagic {
		return 0, errors.New("no dump of compiled code of this machine")
	}
	size := int64(binary.LittleEndian.Uint32(head[8:]))
	if size < dumpHeadSize {
		return 0, fmt.Errorf("a header of %d bytes", size)
	}
	return size, nil
}

// record takes the record at d.read and gives its size; io.EOF where it is not
// all there.
func (d *JITDump) record(r io.ReaderAt) (int64, error) {
	var head [recordHead]byte
	if n, _ := r.ReadAt(head[:], d.read); n < len(head) {
		return 0, io.EOF
	}
	kind, size := binary.LittleEndian.Uint32(head[:]), int64(binary.LittleEndian.Uint32(head[4:]))
	if size < recordHead {
		return 0, fmt.Errorf("a record of %d bytes", size)
	}
	if d.info != nil && d.read+size > d.info.Size() {
		return 0, io.EOF
	}
	limit := int64(maxDumpName)
	if kind == recordLines {
		limit, d.next = maxDumpLines, nil
	}
	if d.full(kind) {
		return size, nil
	}
	body := make([]byte, min(size-recordHead, limit))
	if n, _ := r.ReadAt(body, d.read+recordHead); n < len(body) {
		return 0, io.EOF
	}
	switch kind {
	case recordLoad:
		d.load(body)
	case recordMove:
		d.move(body)
	case recordLines:
		d.lines += len(body)
		d.next = parseDumpLines(body)
	}
	return size, nil
}

// full tells whether the process has told as much of something as is taken.
func (d *JITDump) full(kind uint32) bool {
	switch kind {
	case recordLoad:
		return len(d.made) >= maxDumpCode || d.names >= maxAllNames
	case recordLines:
		return d.lines >= maxAllLines
	}
	return false
}

// load takes code that was made: pid, tid, vma, address, size, number, name.
func (d *JITDump) load(body []byte) {
	lines := d.next
	d.next = nil
	if len(body) < 40 {
		return
	}
	le := binary.LittleEndian
	e := jitEntry{start: le.Uint64(body[16:]), lines: lines}
	e.end = e.start + le.Uint64(body[24:])
	name, _, ok := bytes.Cut(body[40:], []byte{0})
	if !ok || len(name) == 0 || e.end <= e.start {
		return
	}
	e.name = string(name)
	d.names += len(name)
	d.made[le.Uint64(body[32:])] = e
	d.code.add(e)
}

// move takes code that was moved: pid, tid, vma, old and new address, size, number.
func (d *JITDump) move(body []byte) {
	if len(body) < 48 {
		return
	}
	le := binary.LittleEndian
	e, ok := d.made[le.Uint64(body[40:])]
	if !ok {
		return
	}
	by := le.Uint64(body[24:]) - e.start
	e.start, e.end, e.moved = e.start+by, e.end+by, e.moved+by // all places share the lines
	if e.end > e.start {
		d.made[le.Uint64(body[40:])] = e
		d.code.add(e)
	}
}

// parseDumpLines takes a record of lines: address, how many, then of each its
// address, line, discriminator and file.
func parseDumpLines(body []byte) (lines []jitLine) {
	if len(body) < 16 {
		return nil
	}
	le := binary.LittleEndian
	file := ""
	for rest := body[16:]; len(rest) >= 17; {
		line := jitLine{address: le.Uint64(rest), line: int(le.Uint32(rest[8:]))}
		name, after, ok := bytes.Cut(rest[16:], []byte{0})
		if !ok {
			break
		}
		if string(name) != sameFile {
			file = string(name)
		}
		line.file = file
		lines = append(lines, line)
		rest = after
	}
	slices.SortStableFunc(lines, func(a, b jitLine) int { return int(min(max(int64(a.address-b.address), -1), 1)) })
	return lines
}
