package doctor

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/binfile/debugfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/symbol"
	"atys.dev/atys/internal/unwind/cfi"
)

// Process is what was found of one process.
type Process struct {
	PID     int
	Name    string
	Threads int
	Err     string // why it cannot be recorded; empty: it can
	Denied  bool   // for want of rights
	Files   []File

	Runtimes []lang.Runtime // what runs in it
	Unknown  string         // why that is not known

	Made  uint64 // bytes of code that is in no file: made at run time
	Names string // what the process has written of it: "jitdump", "perf map"; "" nothing
	Wrong string // why a map that is there is not read
}

// File is one that the process maps as code.
type File struct {
	Path    string
	Err     string // why it cannot be read
	Gone    bool   // deleted or replaced, and not to be had
	Rows    int    // of the unwind table
	Keeps   bool   // all its code keeps frame pointers
	Unwind  string // why there is no table
	Symbols Symbols
}

// Symbols says where the names of a file's functions come from.
type Symbols string

const (
	SymbolsFull     Symbols = "symbol table"
	SymbolsGo       Symbols = "Go's function table"
	SymbolsDebug    Symbols = "debug file"
	SymbolsMini     Symbols = "mini debug info"
	SymbolsManaged  Symbols = "the runtime of .NET"
	SymbolsExported Symbols = "exported functions only"
	SymbolsNone     Symbols = "none"
)

// gatherProcess looks at a process and the files of its code.
func gatherProcess(procfs proc.FS, pid int) *Process {
	p := &Process{PID: pid}
	stat, err := procfs.Check(pid)
	p.Name, p.Threads = stat.Comm, stat.Threads
	if err != nil {
		p.Err = err.Error()
		return p
	}
	maps, err := procfs.Executable(pid)
	if err != nil {
		p.Err, p.Denied = err.Error(), os.IsPermission(unwrapAll(err))
		return p
	}
	seen := map[[3]uint64]bool{}
	for _, m := range maps {
		id := [3]uint64{uint64(m.Major), uint64(m.Minor), m.Inode}
		switch {
		case isMade(procfs, pid, m):
			p.Made += m.End - m.Start
		case m.HasFile() && !seen[id] && !symbol.IsJITDump(m):
			seen[id] = true
			p.Files = append(p.Files, lookAt(procfs, pid, m))
		}
	}
	p.gatherRuntimes(procfs)
	return p
}

// isMade tells code that was made at run time: compilers put it into memory
// without a name, into files without one, or, as PHP's does, into shared memory.
func isMade(procfs proc.FS, pid int, m proc.Mapping) bool {
	switch m.Backing {
	case proc.BackingAnonymous, proc.BackingShared:
		return true
	case proc.BackingMemfd: // a program or a library can be in one
		handle, err := procfs.MapFile(pid, m)
		if err != nil {
			return false
		}
		defer handle.Close()
		var magic [4]byte
		_, err = handle.ReadAt(magic[:], 0)
		return err != nil || string(magic[:]) != elf.ELFMAG
	}
	return false
}

// unwrapAll finds the innermost error: os.IsPermission does not unwrap.
func unwrapAll(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err
		}
		err = inner.Unwrap()
	}
}

// lookAt reads what one file offers.
func lookAt(procfs proc.FS, pid int, m proc.Mapping) File {
	f := File{Path: m.Path, Symbols: SymbolsNone}
	handle, err := procfs.MapFile(pid, m)
	if err != nil {
		f.Err, f.Gone = err.Error(), m.Deleted
		return f
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		f.Err = err.Error()
		return f
	}
	if managed, err := binfile.NewPE(handle); err == nil {
		f.Rows, f.Symbols = len(managed.Functions), SymbolsManaged
		f.Keeps = f.Rows == 0 // what was not compiled ahead has no code there
		return f
	}
	b, err := binfile.New(handle, info.Size())
	if err != nil {
		f.Err = err.Error()
		return f
	}
	table, err := cfi.Build(b.ELF)
	if err != nil {
		f.Unwind = err.Error()
	} else {
		f.Rows, f.Keeps = len(table.Rows), table.KeepsFramePointers
	}
	f.Symbols = symbolsOf(b, m.Path)
	return f
}

// symbolsOf finds the best source of names on this machine.
func symbolsOf(b *binfile.File, path string) Symbols {
	symbols, full := b.Symbols()
	switch {
	case b.IsGo():
		return SymbolsGo
	case full:
		return SymbolsFull
	}
	var finder debugfile.Finder
	if d := finder.FindLocal(b, path); d != nil {
		d.Close()
		return SymbolsDebug
	}
	if d, err := b.MiniDebug(); err == nil {
		d.Close()
		return SymbolsMini
	}
	if len(symbols) > 0 {
		return SymbolsExported
	}
	return SymbolsNone
}

func (p *Process) title() string {
	if p.Name == "" { // there is no such process
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}

// checks judges a process.
func (p *Process) checks(f Facts) []Check {
	if p.Err != "" {
		c := Check{Name: "readable", State: Missing, Found: p.Err, Cost: "it cannot be recorded"}
		if p.Denied && !f.Capabilities.Has(unix.CAP_SYS_PTRACE) {
			c.Mend = f.setcap()
		}
		return []Check{c}
	}
	checks := []Check{
		{Name: "readable", State: OK, Found: fmt.Sprintf("%d threads, %d files of code", p.Threads, len(p.Files))},
		p.readable(f), p.unwinds(), p.named(),
	}
	return append(append(checks, p.languages()...), p.made())
}

func (p *Process) readable(f Facts) Check {
	c := Check{Name: "files", State: OK, Found: "all can be read"}
	gone := false
	bad := p.list(func(file File) bool {
		gone = gone || file.Gone
		return file.Err != ""
	})
	if len(bad) == 0 {
		return c
	}
	c.State, c.Found = Limited, "not readable: "+join(bad)
	c.Cost = "stacks end where they enter them, and their functions have no names"
	switch {
	case gone && !f.Capabilities.Has(unix.CAP_CHECKPOINT_RESTORE), !f.Capabilities.Has(unix.CAP_DAC_READ_SEARCH):
		c.Mend = f.setcap()
	}
	return c
}

// everywhere is where something was found that no file was seen to lack.
func (p *Process) everywhere() string {
	if len(p.list(func(file File) bool { return file.Err != "" })) > 0 {
		return "in every file that can be read"
	}
	return "in every file"
}

func (p *Process) unwinds() Check {
	c := Check{Name: "unwind information", State: OK, Found: p.everywhere()}
	none := p.list(func(file File) bool { return file.Err == "" && file.Rows == 0 && !file.Keeps })
	if len(none) > 0 {
		c.State, c.Found = Limited, "none in "+join(none)
		c.Cost = "stacks end where they enter it"
		c.Mend = "build it without -fno-asynchronous-unwind-tables, and do not strip .eh_frame"
	}
	return c
}

func (p *Process) named() Check {
	c := Check{Name: "symbols", State: OK, Found: p.everywhere()}
	poor := p.list(func(file File) bool {
		return file.Err == "" && (file.Symbols == SymbolsExported || file.Symbols == SymbolsNone)
	})
	if len(poor) > 0 {
		c.State, c.Found = Limited, "stripped: "+join(poor)
		c.Cost = "functions that are not exported are shown as file+0xoffset"
		c.Mend = "install their debug packages (-dbgsym, -debuginfo), or export DEBUGINFOD_URLS=https://debuginfod.elfutils.org"
	}
	return c
}

// list gives the names of the files that something holds for.
func (p *Process) list(holds func(File) bool) (names []string) {
	for _, f := range p.Files {
		if holds(f) {
			names = append(names, path.Base(f.Path))
		}
	}
	return names
}

// join shows the first few of a list.
func join(names []string) string {
	const shown = 6
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}
