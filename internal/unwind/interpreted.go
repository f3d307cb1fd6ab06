package unwind

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/lang/beam"
	"atys.dev/atys/internal/lang/dotnet"
	"atys.dev/atys/internal/lang/hotspot"
	"atys.dev/atys/internal/lang/perl"
	"atys.dev/atys/internal/lang/php"
	"atys.dev/atys/internal/lang/python"
	"atys.dev/atys/internal/lang/ruby"
	"atys.dev/atys/internal/lang/v8"
)

// Language is whose functions a frame shows; the numbers are enum language's.
type Language uint32

// The languages that walks know.
const (
	Python Language = 1 + iota
	Java
	V8
	Ruby
	PHP
	Perl
	BEAM
	DotNet
)

// runs is the flag by which executables and processes are marked.
func (l Language) runs() uint32 { return 1 << (8 + l) }

// runtimes are the languages whose runtimes are looked for, and how.
//
// Executables are recognised when their tables are built; the runtime of each
// process that maps one is then read apart from all that (attach), again and
// again while it is still starting.
var runtimes = []struct {
	language Language
	// holds tells whether a file holds the runtime.
	holds func(*binfile.File) bool
	// read finds out what walks need to know of a process.
	read func(lang.Mapped) (lang.Walked, error)
	// parameters is the map of the programs that takes it, by process.
	parameters string
}{
	{V8, v8.Holds, v8.Read, "v8_processes"},
	{Python, python.Holds, python.Read, "python_processes"},
	{Java, hotspot.Holds, hotspot.Read, "hotspot_processes"},
	{Ruby, ruby.Holds, ruby.Read, "ruby_processes"},
	{PHP, php.Holds, php.Read, "php_processes"},
	{Perl, perl.Holds, perl.Read, "perl_processes"},
	{BEAM, beam.Holds, beam.Read, "beam_processes"},
	{DotNet, dotnet.Holds, dotnet.Read, "dotnet_processes"},
}

// makeParameters makes the maps that take what is read.
func (u *Unwinder) makeParameters(spec *ebpf.CollectionSpec) error {
	for _, r := range runtimes {
		m, err := ebpf.NewMap(spec.Maps[r.parameters])
		if err != nil {
			return bpf.Explain("create the map "+r.parameters, err)
		}
		u.parameters[r.language] = m
	}
	return nil
}

// runsIn tells which languages' runtimes a file holds.
func runsIn(f *binfile.File) (flags uint32) {
	for _, r := range runtimes {
		if r.holds(f) {
			flags |= r.language.runs()
		}
	}
	return flags
}

// attachment is a process whose runtimes are to be read.
type attachment struct {
	pid     int
	process *process
	tries   int
	due     time.Time
}

const (
	attachTries = 14
	attachAgain = 5 * time.Millisecond // doubled each time: some 80 s together
)

// wantRuntimes has the runtimes of a process read that are not known yet. Who
// asks holds the lock, and may ask for thousands at once: none is refused, for a
// process that is idle maps nothing more, and nobody would ask again.
func (u *Unwinder) wantRuntimes(pid int, p *process) {
	if p.wants() == 0 || p.attaching {
		return
	}
	p.attaching = true
	u.unattached[pid] = p
	select {
	case u.attachments <- struct{}{}:
	default: // attach is told already
	}
}

// takeUnattached gives the processes that are to be read since it was asked last.
func (u *Unwinder) takeUnattached() (all []*attachment) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for pid, p := range u.unattached {
		all = append(all, &attachment{pid: pid, process: p})
	}
	clear(u.unattached)
	return all
}

// patience is how long Track waits for a process's runtimes to be read: the
// first node takes 0.1 s, and one that is still starting is not waited for.
const patience = time.Second

// awaitRuntimes lets the lock go until the first attempt to read what the
// process runs has ended.
func (u *Unwinder) awaitRuntimes(p *process) {
	for deadline := time.Now().Add(patience); p.attaching && len(p.unread) == 0 && p.wants() != 0 && time.Now().Before(deadline); {
		u.mu.Unlock()
		time.Sleep(time.Millisecond)
		u.mu.Lock()
	}
}

// runs are the languages whose runtimes a process maps.
func (p *process) runs() (flags uint32) {
	for _, a := range p.layout.areas {
		if a.executable != nil {
			flags |= a.executable.runs
		}
	}
	return flags
}

// wants are the languages whose runtimes are still to be read.
func (p *process) wants() uint32 { return p.runs() &^ (p.languages | p.hopeless) }

// attach reads the runtimes of processes, apart from follow: it may take long,
// and a runtime that is still starting has to be waited for.
func (u *Unwinder) attach() {
	var waiting []*attachment
	for {
		var next <-chan time.Time
		if len(waiting) > 0 {
			next = time.After(time.Until(slices.MinFunc(waiting, bySoonest).due))
		}
		select {
		case <-u.stop:
			return
		case <-u.attachments:
			waiting = append(waiting, u.takeUnattached()...)
		case <-next:
		}
		waiting = slices.DeleteFunc(waiting, u.attend)
	}
}

func bySoonest(a, b *attachment) int { return a.due.Compare(b.due) }

// attend reads a process's runtimes if that is due; false where it is to be
// done, or tried again, later.
func (u *Unwinder) attend(a *attachment) (done bool) {
	if time.Now().Before(a.due) {
		return false
	}
	if u.readRuntimes(a) {
		return true
	}
	a.due = time.Now().Add(attachAgain << a.tries)
	a.tries++
	return false
}

// readRuntimes reads what is missing of a process's runtimes; false where it
// should be tried again.
func (u *Unwinder) readRuntimes(a *attachment) (done bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := a.process
	if u.closed || u.processes[a.pid] != p {
		return true // gone, or another program since, or nobody wants it any more
	}
	failed := false
	for _, r := range runtimes {
		if p.wants()&r.language.runs() == 0 {
			continue
		}
		f, ok := u.runtimeFile(a.pid, p, r.language.runs())
		if !ok {
			continue
		}
		u.mu.Unlock()
		found, err := r.read(f)
		u.mu.Lock()
		if u.processes[a.pid] != p {
			return true
		}
		if err == nil {
			err = u.keepRuntime(a.pid, p, r.language, found)
		}
		if err == nil {
			continue
		}
		u.options.Log.Debug("read runtime", "pid", a.pid, "path", f.Path, "try", a.tries, "error", err)
		p.lack(r.language, err)
		if !errors.Is(err, lang.ErrNever) {
			failed = true
		}
	}
	if failed && a.tries < attachTries {
		return false
	}
	p.attaching = false
	return true
}

// lack notes why a process's runtime is not known.
func (p *process) lack(language Language, err error) {
	if p.unread == nil {
		p.unread = map[Language]error{}
	}
	p.unread[language] = err
	if errors.Is(err, lang.ErrNever) {
		p.hopeless |= language.runs()
	}
}

// runtimeFile finds where a process maps the file of a runtime. The lock is dropped
// while the file is read.
func (u *Unwinder) runtimeFile(pid int, p *process, flag uint32) (lang.Mapped, bool) {
	for _, a := range slices.Clone(p.layout.areas) {
		e := a.executable
		if e == nil || e.runs&flag == 0 || e.handle == nil {
			continue
		}
		handle := e.handle
		u.mu.Unlock()
		f, err := readELF(handle)
		u.mu.Lock()
		if err != nil || e.handle != handle {
			return lang.Mapped{}, false
		}
		address, ok := f.Address(a.offset)
		if !ok {
			continue
		}
		return lang.Mapped{PID: pid, Path: e.path, Bias: a.start - address, Open: e.source().Open, Notes: e.currentNotes()}, true
	}
	return lang.Mapped{}, false
}

// keepRuntime tells walks of a runtime, and keeps it for those that name frames.
func (u *Unwinder) keepRuntime(pid int, p *process, language Language, found lang.Walked) error {
	if err := u.putParameters(pid, p, language, found); err != nil {
		return err
	}
	if p.runtimes == nil {
		p.runtimes = map[Language]lang.Walked{}
	}
	p.runtimes[language] = found
	p.languages |= language.runs()
	delete(p.unread, language)
	u.point(pid, p)
	if u.options.OnRuntime != nil {
		u.options.OnRuntime(pid, language)
	}
	return nil
}

// errNoRoomForRuntime is met where as many processes as walks can know run one
// language.
var errNoRoomForRuntime = errors.New("no room for another process of this language: it is read when one of those known has ended")

// putParameters gives walks what they need to know of a process's runtime.
func (u *Unwinder) putParameters(pid int, p *process, language Language, found lang.Walked) error {
	err := u.parameters[language].Put(uint32(pid), found.Parameters())
	if errors.Is(err, unix.E2BIG) {
		err = errNoRoomForRuntime
	}
	if err == nil || errors.Is(p.unread[language], errNoRoomForRuntime) {
		return err
	}
	u.stats.ProcessErrors++
	u.options.Log.Warn("keep a runtime", "pid", pid, "error", err)
	return err
}

// inherit gives a fork its parent's runtimes.
func (u *Unwinder) inherit(pid int, child, parent *process) {
	child.hopeless, child.unread = parent.hopeless, maps.Clone(parent.unread)
	for language, found := range parent.runtimes {
		if err := u.putParameters(pid, child, language, found); err != nil {
			child.lack(language, err) // it is read anew, when there may be room
			continue
		}
		if child.runtimes == nil {
			child.runtimes = map[Language]lang.Walked{}
		}
		child.runtimes[language] = found
		child.languages |= language.runs()
	}
}

// dropParameters forgets a process's runtimes.
func (u *Unwinder) dropParameters(pid int, p *process) {
	for language := range p.runtimes {
		if err := u.parameters[language].Delete(uint32(pid)); err != nil && !isNotExist(err) {
			u.options.Log.Debug("forget runtime", "pid", pid, "error", err)
		}
		u.madeRoom[language]++
	}
}

// wantCrowdedOut has as many processes read again that found no room as have
// ended since, once they are not tried any more.
func (u *Unwinder) wantCrowdedOut() {
	if len(u.madeRoom) == 0 {
		return
	}
	for pid, p := range u.processes {
		if p.attaching {
			continue
		}
		for language, n := range u.madeRoom {
			if n > 0 && errors.Is(p.unread[language], errNoRoomForRuntime) {
				u.madeRoom[language]--
				u.wantRuntimes(pid, p)
			}
		}
	}
	clear(u.madeRoom)
}

// Runtime gives what is known of a language's runtime in a process.
func (u *Unwinder) Runtime(pid int, language Language) (lang.Walked, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.processes[pid]
	if p == nil {
		return nil, fmt.Errorf("process %d is not followed", pid)
	}
	if found, ok := p.runtimes[language]; ok {
		return found, nil
	}
	if err := p.unread[language]; err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return nil, fmt.Errorf("process %d runs nothing of this language, or it has not been read yet", pid)
}
