package symbol

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

const (
	maxPerfMap     = 256 << 20 // bytes read of one map; a long-running node writes some 50 MB
	maxPerfMapLine = 1 << 14
)

// PerfMap names code that a runtime compiled while running, from the map that
// runtimes write for perf: lines of "start size name", hexadecimal, only ever
// appended to. It is not safe for concurrent use.
type PerfMap struct {
	growing
	code jitTable
}

// PerfMapOf names the code of a process by the map that is its own: what another
// user put there, or another process left that had its number, is refused.
func PerfMapOf(pid int) *PerfMap {
	root := fmt.Sprintf("/proc/%d/root", pid)
	return &PerfMap{growing: growing{file: untrusted{
		root:  root,
		path:  strings.TrimPrefix(PerfMapPath("/proc", pid), root),
		check: func(info os.FileInfo) error { return writtenBy(proc.FS{}, pid, info) },
	}}}
}

// writtenBy tells why a file cannot be what a process wrote.
func writtenBy(fs proc.FS, pid int, info os.FileInfo) error {
	status, err := fs.Status(pid)
	if err != nil {
		return err
	}
	stat, err := fs.Stat(pid)
	if err != nil {
		return err
	}
	boot, err := proc.BootTime()
	if err != nil {
		return err
	}
	const slack = time.Second // of the clocks
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || owner.Uid != 0 && int(owner.Uid) != status.UID:
		return fmt.Errorf("%q belongs to another user than process %d", info.Name(), pid)
	case info.ModTime().Before(boot.Add(stat.Started - slack)):
		return fmt.Errorf("%q is older than process %d", info.Name(), pid)
	}
	return nil
}

// PerfMapPath tells where the map of a process is, as seen from here: it is in
// the process's own /tmp, and named after the pid the process knows itself by.
func PerfMapPath(proc string, pid int) string {
	inner := strconv.Itoa(pid)
	if status, err := os.ReadFile(fmt.Sprintf("%s/%d/status", proc, pid)); err == nil {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if ids := strings.Fields(rest); len(ids) > 0 {
					inner = ids[len(ids)-1]
				}
			}
		}
	}
	return fmt.Sprintf("%s/%d/root/tmp/perf-%s.map", proc, pid, inner)
}

// Frame names an address, as of the last Refresh.
func (m *PerfMap) Frame(address uint64) (profile.Frame, bool) { return m.code.frame(address) }

// Refresh reads what was appended since the last time. A file that was replaced
// or shortened is read anew.
func (m *PerfMap) Refresh() error {
	f, anew, err := m.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if anew {
		m.code = jitTable{}
	}
	size := m.info.Size()
	if size == m.read {
		return nil
	}
	return m.parse(io.NewSectionReader(f, m.read, min(size, maxPerfMap)-m.read))
}

// parse takes complete lines; one still being written is left for the next time.
func (m *PerfMap) parse(r io.Reader) error {
	in := bufio.NewReaderSize(r, maxPerfMapLine)
	for {
		line, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			m.read += int64(len(line))
			if err = m.skipLine(in); err == nil {
				continue
			}
		}
		if err != nil {
			m.code.settle()
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("read %q: %w", m.file, err)
		}
		m.read += int64(len(line))
		if e, ok := parseJITLine(line); ok {
			m.code.add(e)
		}
	}
}

func (m *PerfMap) skipLine(in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		m.read += int64(len(line))
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}

func parseJITLine(line []byte) (e jitEntry, ok bool) {
	line = bytes.TrimRight(line, "\r\n")
	first, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return e, false
	}
	second, name, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(name) == 0 {
		return e, false
	}
	start, err := parseHex(first)
	if err != nil {
		return e, false
	}
	size, err := parseHex(second)
	if err != nil || size == 0 || start+size < start {
		return e, false
	}
	return jitEntry{start: start, end: start + size, name: string(name)}, true
}

func parseHex(b []byte) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(string(b), "0x"), 16, 64)
}
