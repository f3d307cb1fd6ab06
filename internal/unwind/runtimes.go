package unwind

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/lang"
)

// runtimes reads the runtimes of languages in processes, and tells walks what they
// need to know of each.
type runtimes struct {
	log        *slog.Logger
	parameters map[Language]*ebpf.Map
	wake       chan struct{} // tells attach that unattached has more

	// locate finds where a process maps a file that holds a runtime, by its flag.
	locate func(pid int, runs uint32) (lang.Mapped, bool)
	// changed is called when a runtime was found, without the lock.
	changed func(pid int, language Language)

	mu         sync.Mutex // guards all below, and what known holds; see Unwinder for the order of locks
	known      map[int]*attached
	unattached map[int]*attached // whose runtimes are to be read, and attach has not taken up
	madeRoom   map[Language]int  // processes whose runtimes were forgotten since the last sweep
	errors     int               // processes that found no room
}

// attached are the runtimes of a process.
type attached struct {
	runs      uint32 // Language.runs of those in the files that it maps
	languages uint32 // of those in found
	hopeless  uint32 // of those that can never be read
	found     map[Language]lang.Walked
	unread    map[Language]error // why they could not be, at last
	attaching bool               // they are being read
}

// wants are the languages whose runtimes are still to be read.
func (a *attached) wants() uint32 { return a.runs &^ (a.languages | a.hopeless) }

// add notes a runtime that walks were told of.
func (a *attached) add(language Language, found lang.Walked) {
	if a.found == nil {
		a.found = map[Language]lang.Walked{}
	}
	a.found[language] = found
	a.languages |= language.runs()
	delete(a.unread, language)
}

// lack notes why a runtime is not known.
func (a *attached) lack(language Language, err error) {
	if a.unread == nil {
		a.unread = map[Language]error{}
	}
	a.unread[language] = err
	if errors.Is(err, lang.ErrNever) {
		a.hopeless |= language.runs()
	}
}

// newRuntimes makes the maps that take what is read.
func newRuntimes(log *slog.Logger, spec *ebpf.CollectionSpec) (*runtimes, error) {
	r := &runtimes{log: log, parameters: map[Language]*ebpf.Map{}, wake: make(chan struct{}, 1),
		known: map[int]*attached{}, unattached: map[int]*attached{}, madeRoom: map[Language]int{}}
	for _, l := range languages {
		m, err := ebpf.NewMap(spec.Maps[l.parameters])
		if err != nil {
			return nil, errors.Join(bpf.Explain("create the map "+l.parameters, err), r.close())
		}
		r.parameters[l.language] = m
	}
	return r, nil
}

// forgetAll has attach come to its end: nothing is left to read.
func (r *runtimes) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.known)
}

func (r *runtimes) close() (err error) {
	for _, m := range r.parameters {
		err = errors.Join(err, m.Close())
	}
	return err
}

// attachment is a process whose runtimes are to be read.
type attachment struct {
	pid     int
	process *attached
	tries   int
	due     time.Time
}

const (
	attachTries = 14
	attachAgain = 5 * time.Millisecond // doubled each time: some 80 s together
)

// want has the runtimes of a process read that are not known yet, if it maps files with
// any: runs are their flags. Thousands may be wanted at once. None is refused, for a
// process that is idle maps nothing more, and nobody would ask again.
func (r *runtimes) want(pid int, runs uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.known[pid]
	if a == nil {
		a = &attached{}
		r.known[pid] = a
	}
	a.runs = runs
	r.attachLater(pid, a)
}

func (r *runtimes) attachLater(pid int, a *attached) {
	if a.wants() == 0 || a.attaching {
		return
	}
	a.attaching = true
	r.unattached[pid] = a
	select {
	case r.wake <- struct{}{}:
	default: // attach is told already
	}
}

// languages are the flags of the runtimes that walks know in a process.
func (r *runtimes) languages(pid int) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.known[pid]; a != nil {
		return a.languages
	}
	return 0
}

// takeUnattached returns the processes that are to be read since it was called last.
func (r *runtimes) takeUnattached() (all []*attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid, a := range r.unattached {
		all = append(all, &attachment{pid: pid, process: a})
	}
	clear(r.unattached)
	return all
}

// patience is how long await waits for a process's runtimes to be read: the
// first node takes 0.1 s, and one that is still starting is not waited for.
const patience = time.Second

// await waits until the first attempt to read what the process runs has ended.
func (r *runtimes) await(pid int) {
	reading := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		a := r.known[pid]
		return a != nil && a.attaching && len(a.unread) == 0 && a.wants() != 0
	}
	for deadline := time.Now().Add(patience); reading() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// attach reads the runtimes of processes until stop is closed. It has a goroutine of its
// own, because it may take long, and a runtime that is still starting has to be waited for.
func (r *runtimes) attach(stop <-chan struct{}) {
	var waiting []*attachment
	for {
		var next <-chan time.Time
		if len(waiting) > 0 {
			next = time.After(time.Until(slices.MinFunc(waiting, bySoonest).due))
		}
		select {
		case <-stop:
			return
		case <-r.wake:
			waiting = append(waiting, r.takeUnattached()...)
		case <-next:
		}
		waiting = slices.DeleteFunc(waiting, r.attend)
	}
}

func bySoonest(a, b *attachment) int { return a.due.Compare(b.due) }

// attend reads a process's runtimes if that is due; false where it is to be
// done, or tried again, later.
func (r *runtimes) attend(a *attachment) (done bool) {
	if time.Now().Before(a.due) {
		return false
	}
	if r.read(a) {
		return true
	}
	a.due = time.Now().Add(attachAgain << a.tries)
	a.tries++
	return false
}

// read reads what is missing of a process's runtimes; false where it should be tried
// again. The lock is dropped while files and the process are read.
func (r *runtimes) read(a *attachment) (done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := a.process
	failed := false
	for _, l := range languages {
		if r.known[a.pid] != p {
			return true // gone, or another program since
		}
		if p.wants()&l.language.runs() == 0 {
			continue
		}
		r.mu.Unlock()
		f, ok := r.locate(a.pid, l.language.runs())
		var found lang.Walked
		var err error
		if ok {
			found, err = l.read(f)
		}
		r.mu.Lock()
		if !ok || r.known[a.pid] != p {
			continue
		}
		if err == nil {
			err = r.keep(a.pid, p, l.language, found)
		}
		if err == nil {
			continue
		}
		r.log.Debug("read runtime", "pid", a.pid, "path", f.Path, "try", a.tries, "error", err)
		p.lack(l.language, err)
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

// keep tells walks of a runtime, and keeps it for those that name frames. The lock is
// dropped while changed is called.
func (r *runtimes) keep(pid int, a *attached, language Language, found lang.Walked) error {
	if err := r.put(pid, a, language, found); err != nil {
		return err
	}
	a.add(language, found)
	r.mu.Unlock()
	defer r.mu.Lock()
	r.changed(pid, language)
	return nil
}

// errNoRoomForRuntime is met where as many processes as walks can know run one
// language.
var errNoRoomForRuntime = errors.New("no room for another process of this language: it is read when one of those known has ended")

// put gives walks what they need to know of a process's runtime.
func (r *runtimes) put(pid int, a *attached, language Language, found lang.Walked) error {
	err := r.parameters[language].Put(uint32(pid), found.Parameters())
	if errors.Is(err, unix.E2BIG) {
		err = errNoRoomForRuntime
	}
	if err == nil || errors.Is(a.unread[language], errNoRoomForRuntime) {
		return err
	}
	r.errors++
	r.log.Warn("keep a runtime", "pid", pid, "error", err)
	return err
}

// inherit gives a fork its parent's runtimes.
func (r *runtimes) inherit(pid, from int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parent := r.known[from]
	if parent == nil {
		return
	}
	child := &attached{hopeless: parent.hopeless, unread: maps.Clone(parent.unread)}
	r.known[pid] = child
	for language, found := range parent.found {
		if err := r.put(pid, child, language, found); err != nil {
			child.lack(language, err) // it is read anew, when there may be room
			continue
		}
		child.add(language, found)
	}
}

// forget drops a process that is gone, or runs another program.
func (r *runtimes) forget(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.known[pid]
	if a == nil {
		return
	}
	delete(r.known, pid)
	delete(r.unattached, pid)
	for language := range a.found {
		if err := r.parameters[language].Delete(uint32(pid)); err != nil && !isNotExist(err) {
			r.log.Debug("forget runtime", "pid", pid, "error", err)
		}
		r.madeRoom[language]++
	}
}

// sweep has as many processes read again that found no room as have ended since, once
// they are not tried any more.
func (r *runtimes) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.madeRoom) == 0 {
		return
	}
	for pid, a := range r.known {
		if a.attaching {
			continue
		}
		for language, n := range r.madeRoom {
			if n > 0 && errors.Is(a.unread[language], errNoRoomForRuntime) {
				r.madeRoom[language]--
				r.attachLater(pid, a)
			}
		}
	}
	clear(r.madeRoom)
}

// find returns what is known of a language's runtime in a process.
func (r *runtimes) find(pid int, language Language) (lang.Walked, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.known[pid]
	if a == nil {
		return nil, fmt.Errorf("process %d is not followed", pid)
	}
	if found, ok := a.found[language]; ok {
		return found, nil
	}
	if err := a.unread[language]; err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return nil, fmt.Errorf("process %d runs nothing of this language, or it has not been read yet", pid)
}
