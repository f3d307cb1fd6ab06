package lang

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/proc"
)

// Detector finds runtimes, and keeps what it has learned of each file. The
// zero value is ready, reads /proc, and may be used concurrently.
type Detector struct {
	FS proc.FS

	mu    sync.Mutex // guards files
	files map[identity]facts
}

// identity is one state of one file. The path is part of it, because some
// things are read from other files beside it.
type identity struct {
	device, inode uint64
	changed       unix.Timespec
	size          int64
	path          string
	program       bool // as opposed to a library, which is read otherwise
}

// maxFiles bounds what is kept: a busy host maps code of some 1,000 files.
const maxFiles = 8192

// Detect returns the runtimes of a process, the program's own first, then
// libraries in the order of their addresses: never none, since what has no
// runtime is Native. It reads /proc/PID and the mapped files. A file that
// cannot be read is told by its name and says so in Why.
func (d *Detector) Detect(pid int) ([]Runtime, error) {
	maps, err := d.FS.Maps(pid)
	if err != nil {
		return nil, err
	}
	// The link is gone once the first thread has exited; the others run on.
	exe, _ := d.FS.Exe(pid)
	p := process{exe: exe.Path, foreign: foreignCode(maps, exe.Path)}
	for _, m := range codeFiles(maps) {
		p.add(m, d.facts(pid, m, m.Path == exe.Path))
	}
	if p.needsVendor() {
		p.vendor = d.jvmProperties(pid, maps)[perfVendor]
	}
	return p.runtimes(), nil
}

// codeFiles returns the first mapping of code of each file.
func codeFiles(maps []proc.Mapping) (first []proc.Mapping) {
	type file struct {
		major, minor uint32
		inode        uint64
		path         string
	}
	seen := map[file]bool{}
	for _, m := range maps {
		id := file{m.Major, m.Minor, m.Inode, m.Path}
		if m.Executable() && m.HasFile() && !seen[id] {
			seen[id] = true
			first = append(first, m)
		}
	}
	return first
}

// foreign is code of a process that is in no file.
type foreign struct {
	anonymous bool // memory that is executable
	shared    bool // shared memory that is, as opcache's JIT has it
}

func foreignCode(maps []proc.Mapping, exe string) (f foreign) {
	for _, m := range maps {
		if !m.Executable() {
			continue
		}
		switch m.Backing {
		case proc.BackingAnonymous:
			f.anonymous = true
		case proc.BackingMemfd:
			f.anonymous = f.anonymous || m.Path != exe // a program can be in one
		case proc.BackingShared:
			f.shared = true
		}
	}
	return f
}

// facts is what one file tells, whichever process maps it.
type facts struct {
	runtimes []Runtime // without Path, Code and Libc
	language string    // of a program without a runtime
	libc     string    // set by the C library and the dynamic linker
	opcache  bool      // it is PHP's
	bits32   bool
	err      error // it could not be opened
}

func (d *Detector) facts(pid int, m proc.Mapping, program bool) facts {
	if st, err := d.FS.StatMapped(pid, m); err == nil {
		if known, ok := d.known(identityOf(&st, m.Path, program)); ok {
			return known
		}
	}
	file, err := d.FS.MapFile(pid, m)
	if err != nil {
		return byName(m.Path, err)
	}
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return byName(m.Path, err)
	}
	id := identityOf(&st, m.Path, program)
	if known, ok := d.known(id); ok {
		return known
	}
	beside := func(path string) (*os.File, error) { return d.FS.RootFile(pid, path) }
	known := inspect(file, m.Path, program, beside)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files == nil || len(d.files) >= maxFiles {
		d.files = map[identity]facts{} // to learn it anew costs less than to keep order
	}
	d.files[id] = known
	return known
}

func identityOf(st *unix.Stat_t, path string, program bool) identity {
	return identity{st.Dev, st.Ino, st.Mtim, st.Size, path, program}
}

// known gives what was learned of a file before.
func (d *Detector) known(id identity) (facts, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, ok := d.files[id]
	return known, ok
}

// inspect reads one file.
func inspect(file *os.File, path string, program bool, beside func(string) (*os.File, error)) facts {
	info, err := file.Stat()
	if err != nil {
		return byName(path, err)
	}
	var ident [5]byte
	if _, err := file.ReadAt(ident[:], 0); err == nil && string(ident[:]) == "\x7fELF\x01" {
		return facts{bits32: true}
	}
	elf, err := binfile.New(file, info.Size())
	if err != nil {
		return facts{} // a mapped archive or data: no code of a runtime
	}
	return newImage(elf, path, program, beside).facts()
}

// process puts the facts of its files together.
type process struct {
	exe      string
	code     proc.Mapping // of the program
	foreign  foreign
	found    []Runtime
	first    []Runtime // of the program itself
	language string
	libc     string
	vendor   string // of the JVM, as it tells itself
	opcache  bool
	bits32   bool
	unread   error // of the program
}

func (p *process) add(m proc.Mapping, f facts) {
	program := m.Path == p.exe
	for _, r := range f.runtimes {
		r.Path, r.Code = m.Path, m
		if program {
			p.first = append(p.first, r)
		} else {
			p.found = append(p.found, r)
		}
	}
	if f.libc != "" && (p.libc == "" || len(f.libc) > len(p.libc)) {
		p.libc = f.libc
	}
	p.opcache = p.opcache || f.opcache
	if program {
		p.code = m
		p.language, p.bits32, p.unread = f.language, f.bits32, f.err
	}
}

func (p *process) needsVendor() bool {
	for _, r := range append(p.first, p.found...) {
		if r.Kind == HotSpot && r.Vendor == "" {
			return true
		}
	}
	return false
}

func (p *process) runtimes() []Runtime {
	all := append(p.first, p.found...)
	if len(all) == 0 {
		all = []Runtime{p.native()}
	}
	for i := range all {
		r := &all[i]
		r.Libc = p.libc
		switch r.Kind {
		case HotSpot:
			if r.Vendor == "" {
				r.Vendor = p.vendor
			}
		case PHP:
			r.Feature = phpFeature(r.Feature, p.opcache, p.foreign.shared)
		}
		walked, why := Support(*r)
		r.Walked = walked && r.Why == ""
		if r.Why == "" {
			r.Why = why
		}
	}
	return all
}

// native is a program without a runtime.
func (p *process) native() Runtime {
	r := Runtime{Kind: Native, Vendor: p.language, Path: p.exe, Code: p.code}
	switch {
	case p.bits32:
		r.Why = "a 32-bit program: its stacks are not walked"
	case p.unread != nil:
		r.Why = "the program cannot be read: " + p.unread.Error()
	case p.foreign.anonymous:
		r.Why = "it has code that is in no file, of a runtime that is not known: stacks may be cut there"
	}
	return r
}
