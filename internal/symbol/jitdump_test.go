package symbol

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/test/testwait"
)

// dumpFile writes records as a runtime would.
type dumpFile struct{ data []byte }

func newDumpFile() *dumpFile {
	le := binary.LittleEndian
	d := &dumpFile{le.AppendUint32(nil, dumpMagic)}
	d.data = le.AppendUint32(d.data, 1)
	d.data = le.AppendUint32(d.data, dumpHeadSize)
	d.data = append(d.data, make([]byte, dumpHeadSize-len(d.data))...)
	return d
}

func (d *dumpFile) record(kind uint32, body []byte) *dumpFile {
	le := binary.LittleEndian
	d.data = le.AppendUint32(d.data, kind)
	d.data = le.AppendUint32(d.data, uint32(recordHead+len(body)))
	d.data = le.AppendUint64(d.data, 0)
	d.data = append(d.data, body...)
	return d
}

func words(values ...uint64) (body []byte) {
	for _, v := range values {
		body = binary.LittleEndian.AppendUint64(body, v)
	}
	return body
}

func (d *dumpFile) load(name string, at, size, number uint64) *dumpFile {
	body := append(words(1<<32|1, at, at, size, number), name...)
	return d.record(recordLoad, append(append(body, 0), make([]byte, size)...))
}

func (d *dumpFile) move(from, to, size, number uint64) *dumpFile {
	return d.record(recordMove, words(1<<32|1, to, from, to, size, number))
}

func (d *dumpFile) lines(at uint64, file string, lines ...uint32) *dumpFile {
	body := words(at, uint64(len(lines)))
	for i, line := range lines {
		body = append(body, words(at+uint64(4*i))...)
		body = binary.LittleEndian.AppendUint32(body, line)
		body = binary.LittleEndian.AppendUint32(body, 0)
		if i > 0 {
			file = sameFile
		}
		body = append(append(body, file...), 0)
	}
	return d.record(recordLines, body)
}

func TestJITDump(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	file := newDumpFile().lines(0x1000, "a.lang", 10, 11, 12).load("first", 0x1000, 64, 1).load("second", 0x2000, 64, 2)
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := NewJITDump(path)
	if err := d.Refresh(); !os.IsNotExist(err) {
		t.Errorf("no file: error %v", err)
	}
	write(file.data)
	want := func(address uint64, function, source string, line int) {
		t.Helper()
		if err := d.Refresh(); err != nil {
			t.Fatal(err)
		}
		f, ok := d.Frame(address)
		if ok != (function != "") || f.Function != function || f.File != source || f.Line != line {
			t.Errorf("%#x is %+v, %v", address, f, ok)
		}
	}
	want(0x1000, "first", "a.lang", 10)
	want(0x1009, "first", "a.lang", 12)
	want(0x103f, "first", "a.lang", 12)
	want(0x1040, "", "", 0)
	want(0x2001, "second", "", 0)

	file.move(0x1000, 0x3000, 64, 1).load("third", 0x1000, 32, 3)
	write(file.data[:len(file.data)-5]) // the last record is still being written
	want(0x3005, "first", "a.lang", 11)
	want(0x1010, "first", "a.lang", 12)
	write(file.data)
	want(0x1010, "third", "", 0)

	write(newDumpFile().load("other", 0x2000, 16, 1).data) // shorter: a new process
	want(0x2001, "other", "", 0)
	want(0x3005, "", "", 0)

	write([]byte("#!/bin/sh\nsomething else altogether, of some length\n"))
	if err := NewJITDump(path).Refresh(); err == nil {
		t.Error("a text was read as a dump")
	}
}

// memoryOf tells how many bytes something allocates.
func memoryOf(t *testing.T, something func() error) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := something(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestJITDumpMovedOften moves code with many lines again and again, for 64 bytes
// of the file each time.
func TestJITDumpMovedOften(t *testing.T) {
	const moves, lines = 500, 50_000
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	file := newDumpFile().lines(0x1000, "a.lang", make([]uint32, lines)...).load("far", 0x1000, 4*lines, 1)
	at := uint64(0x1000)
	for range moves {
		file.move(at, at+1<<20, 4*lines, 1)
		at += 1 << 20
	}
	if err := os.WriteFile(path, file.data, 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewJITDump(path)
	if took := memoryOf(t, d.Refresh); took > 32<<20 {
		t.Errorf("%d bytes of file took %d of memory", len(file.data), took)
	}
	for _, place := range []uint64{0x1004, at + 4, at + 4*lines - 1} {
		if f, ok := d.Frame(place); !ok || f.Function != "far" || f.File != "a.lang" {
			t.Errorf("%#x is %+v, %v", place, f, ok)
		}
	}
}

// TestJITDumpFullOfLines tells lines without end, from a file that has holes in
// their place.
func TestJITDumpFullOfLines(t *testing.T) {
	const records = 3 * maxAllLines / maxDumpLines
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	write := func(data []byte) {
		if _, err := f.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
		at += int64(len(data))
	}
	write(newDumpFile().data)
	for i := range uint64(records) {
		write(words(recordLines|(recordHead+maxDumpLines)<<32, 0))
		at += maxDumpLines
		write((&dumpFile{}).load("f", i<<20, 1<<10, i).data)
	}
	d := NewJITDump(path)
	if took := memoryOf(t, d.Refresh); took > 16*maxAllLines { // as it grows; 35 without a bound
		t.Errorf("took %d bytes of memory", took)
	}
	if f, ok := d.Frame((records - 1) << 20); !ok || f.Function != "f" {
		t.Errorf("the last one is %+v, %v", f, ok)
	}
}

// TestFindJITDump refuses dumps that a process cannot have written.
func TestFindJITDump(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	if err := os.WriteFile(path, newDumpFile().load("own", 0x1000, 64, 1).data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	refresh := func() (*JITDump, error) {
		d, err := FindJITDump(proc.FS{}, "/proc", os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return d, d.Refresh()
	}
	d, err := refresh()
	if err != nil {
		t.Fatalf("its own dump: %v", err)
	}
	if f, ok := d.Frame(0x1000); !ok || f.Function != "own" {
		t.Errorf("named %+v", f)
	}
	before := time.Now().Add(-240 * time.Hour)
	if err := os.Chtimes(path, before, before); err != nil {
		t.Fatal(err)
	}
	if _, err := refresh(); err == nil || !strings.Contains(err.Error(), "is older than process") {
		t.Errorf("a dump of before it began: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Chtimes(path, time.Now(), time.Now()), os.Chown(path, 4321, 4321)); err != nil {
		t.Fatal(err)
	}
	if _, err := refresh(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("another user's dump: %v", err)
	}
}

func TestJITDumpOfNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	dir := t.TempDir()
	const script = `function spinning(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s }
setInterval(() => spinning(2e6), 1)`
	c := exec.Command(node, "--perf-prof", "-e", script)
	c.Dir = dir
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		d, err := FindJITDump(proc.FS{}, "/proc", c.Process.Pid)
		if err != nil || d.Refresh() != nil {
			continue
		}
		for _, e := range d.code.entries {
			if f, ok := d.Frame(e.start); ok && e.name == f.Function && strings.Contains(e.name, "spinning") {
				return
			}
		}
	}
	t.Fatal("the dump of a node that was asked for one does not name its function")
}

func FuzzJITDump(f *testing.F) {
	f.Add(newDumpFile().lines(0x1000, "a", 1, 2).load("first", 0x1000, 8, 1).move(0x1000, 0x1004, 8, 1).data, uint64(0x1005))
	f.Add(newDumpFile().record(recordLoad, words(1, 2, ^uint64(0), 5, 1)).data, uint64(3))
	often := newDumpFile().lines(0x1000, "a", make([]uint32, 50)...).load("often", 0x1000, 8, 1)
	for at := range uint64(200) {
		often.move(at<<12, (at+1)<<12, 8, 1)
	}
	f.Add(often.data, uint64(0x2001))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, address uint64) {
		path := filepath.Join(dir, "jit-1.dump")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		d := NewJITDump(path)
		_ = d.Refresh() // an error, but no harm
		if kept := keptLines(d.code.entries); kept > len(data)/17 {
			t.Fatalf("%d lines of a file of %d bytes are kept", kept, len(data))
		}
		for i, e := range d.code.entries {
			if e.start >= e.end || i > 0 && e.start < d.code.entries[i-1].end || e.name == "" {
				t.Fatalf("entry %d of %+v", i, d.code.entries)
			}
		}
		if f, ok := d.Frame(address); ok && f.Function == "" {
			t.Fatal("a frame without name")
		}
	})
}

// keptLines counts lines, once where several pieces of code have them.
func keptLines(entries []jitEntry) (kept int) {
	seen := map[*jitLine]bool{}
	for _, e := range entries {
		if len(e.lines) > 0 && !seen[&e.lines[0]] {
			seen[&e.lines[0]] = true
			kept += len(e.lines)
		}
	}
	return kept
}
