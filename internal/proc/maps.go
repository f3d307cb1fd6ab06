package proc

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Perm is what a mapping allows.
type Perm uint8

const (
	PermRead Perm = 1 << iota
	PermWrite
	PermExec
	PermShared
)

// Backing is what lies behind a mapping.
type Backing uint8

const (
	BackingAnonymous Backing = iota // memory, named or not: heaps, stacks, JIT code
	BackingFile                     // a file with a path, deleted or not
	BackingMemfd                    // a file that never had a path
	BackingShared                   // shared memory: /dev/zero, System V
	BackingVDSO                     // the kernel's code in user space
	BackingVsyscall                 // its predecessor, at a fixed address of every process
	BackingKernel                   // other memory of the kernel: [vvar], ring buffers
)

// Mapping is one line of a maps file.
type Mapping struct {
	Start, End, Offset uint64
	Major, Minor       uint32
	Inode              uint64
	Perm               Perm
	Backing            Backing
	Deleted            bool // the path no longer leads to the file (but see MapFile)
	// Path is a path in the mount namespace of the process, without the
	// kernel's " (deleted)", or a name in brackets.
	Path string
}

// Executable reports whether code can run there.
func (m *Mapping) Executable() bool { return m.Perm&PermExec != 0 }

// HasFile reports whether MapFile can open what is mapped.
func (m *Mapping) HasFile() bool {
	return m.Backing == BackingFile || m.Backing == BackingMemfd
}

// Maps returns the mappings of a process in the order of their addresses.
func (f FS) Maps(pid int) ([]Mapping, error) { return f.AppendMaps(nil, pid) }

// AppendMaps appends the mappings of a process to dst. A process without any
// has no user code, and the error says why.
func (f FS) AppendMaps(dst []Mapping, pid int) ([]Mapping, error) {
	before := len(dst)
	parse := func(data []byte) (err error) {
		dst, err = ParseMaps(dst[:before], data)
		return err
	}
	if err := f.readPID(pid, "maps", parse); err != nil {
		return dst[:before], fmt.Errorf("read mappings: %w", err)
	}
	if len(dst) > before {
		return dst, nil
	}
	s, err := f.Check(pid)
	if err != nil {
		return dst, fmt.Errorf("read mappings: %w", err)
	}
	if tid, ok := f.survivor(s); ok {
		return f.AppendMaps(dst, tid)
	}
	return dst, fmt.Errorf("read mappings: process %d has none", pid)
}

// ParseMaps appends the mappings in the bytes of a maps file to dst. Adjacent
// mappings of one file share their path's memory.
//
//	55d0c8a00000-55d0c8a05000 r-xp 00002000 fe:00 247026      /usr/bin/cat
//	start        end          perm offset   device inode      path, may hold anything but a newline
func ParseMaps(dst []Mapping, data []byte) ([]Mapping, error) {
	last := ""
	for len(data) > 0 {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		m, name, ok := parseMapping(line)
		if !ok {
			return dst, fmt.Errorf("malformed mapping %q", clip(line))
		}
		if string(name) != last {
			last = string(name)
		}
		m.name(last)
		if strings.Contains(m.Path, `\012`) {
			m.Path = strings.ReplaceAll(m.Path, `\012`, "\n")
		}
		dst = append(dst, m)
	}
	return dst, nil
}

// parseMapping reads all of a line but the name, which it returns as it stands.
func parseMapping(line []byte) (m Mapping, name []byte, ok bool) {
	s := scanner{rest: line}
	m.Start = s.hex('-')
	m.End = s.hex(' ')
	perm := s.take(5)
	m.Offset = s.hex(' ')
	m.Major = uint32(s.hex(':'))
	m.Minor = uint32(s.hex(' '))
	m.Inode = s.decimal(' ')
	if s.bad || m.Start > m.End || perm[4] != ' ' {
		return m, nil, false
	}
	for i, bit := range [...]Perm{PermRead, PermWrite, PermExec, PermShared} {
		if perm[i] == "rwxs"[i] {
			m.Perm |= bit
		}
	}
	return m, bytes.TrimLeft(s.rest, " "), true
}

// name interprets the name of a mapping. The kernel marks files whose last
// link is gone with a suffix that a file can also have in its name, and escapes
// newlines in maps files but not backslashes: MapFile knows and looks at both.
func (m *Mapping) name(s string) {
	switch {
	case s == "":
		return
	case s == "[vdso]":
		m.Backing = BackingVDSO
	case s == "[vsyscall]":
		m.Backing = BackingVsyscall
	case strings.HasPrefix(s, "[vvar"), !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "["):
		m.Backing = BackingKernel // "anon_inode:[perf_event]", "socket:[1234]"
	case strings.HasPrefix(s, "["):
		m.Backing = BackingAnonymous
	default:
		m.Backing = BackingFile
		s, m.Deleted = strings.CutSuffix(s, " (deleted)")
		switch {
		case strings.HasPrefix(s, "/memfd:"):
			m.Backing = BackingMemfd
		case m.Deleted && (s == "/dev/zero" || strings.HasPrefix(s, "/SYSV")):
			m.Backing = BackingShared
		}
	}
	m.Path = s
}

// scanner reads the fields of a line. After a failure it stays bad and yields
// zeros, so that callers check once.
type scanner struct {
	rest []byte
	bad  bool
}

// hex reads hexadecimal digits up to the byte end, which is consumed.
func (s *scanner) hex(end byte) (v uint64) {
	for i, c := range s.rest {
		d := hexDigits[c]
		if d > 15 {
			s.bad = s.bad || i == 0 || c != end
			s.rest = s.rest[i+1:]
			return v
		}
		if v>>60 != 0 {
			break
		}
		v = v<<4 | uint64(d)
	}
	s.bad, s.rest = true, nil
	return 0
}

// decimal reads decimal digits up to the byte end or the end of the line.
func (s *scanner) decimal(end byte) (v uint64) {
	for i, c := range s.rest {
		d := uint64(c - '0')
		if d > 9 {
			s.bad = s.bad || i == 0 || c != end
			s.rest = s.rest[i+1:]
			return v
		}
		high, low := bits.Mul64(v, 10)
		if high != 0 || low > 1<<64-1-d {
			s.bad = true
			return 0
		}
		v = low + d
	}
	s.bad = s.bad || len(s.rest) == 0
	s.rest = nil
	return v
}

// take returns the next n bytes; zeros after a failure.
func (s *scanner) take(n int) []byte {
	if len(s.rest) < n {
		s.bad, s.rest = true, nil
		return make([]byte, n)
	}
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

// hexDigits maps the kernel's digits, which are lower case, to their values
// and all else to 99. A table, because most of a maps file is such digits.
var hexDigits = func() (t [256]uint8) {
	for c := range t {
		t[c] = 99
	}
	for v, c := range "0123456789abcdef" {
		t[c] = uint8(v)
	}
	return t
}()

// clip shortens foreign bytes for an error.
func clip(b []byte) []byte { return b[:min(len(b), 80)] }

// errMalformed is wrapped with the name of what is malformed.
var errMalformed = errors.New("malformed")
