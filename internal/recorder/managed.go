package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang/dotnet"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// managed names code of .NET. The runtime itself has to be asked for its
// methods, which takes it some 15 to 200 ms of one thread: once when a process
// is met, again where code has no name, at most every 10 s, and at the end of a
// recording. Nothing that is recorded waits for an answer but the end.
//
// Until there is one, code made at run time is a location of its process and
// address; name puts the method in its place. Code compiled ahead is of a file,
// and has its names by that.
type managed struct {
	log   *slog.Logger
	ask   func(context.Context, int) (dotnet.Methods, error)
	asker dotnet.Asker
	age   func(pid int) time.Duration
	now   func() time.Time
	ended chan struct{} // closed by close
	done  sync.WaitGroup

	mu        sync.Mutex // guards all below
	processes map[int]*managedProcess
	byKey     map[string]*managedProcess
	ahead     map[string]map[uint64]dotnet.Method // by build-id, by where its code begins in the file
	files     map[string]*binfile.PE              // that hold some, by build-id
}

type managedProcess struct {
	pid     int
	key     string // what its locations have in place of a build-id
	methods []dotnet.Methods
	asked   time.Time
	every   time.Duration
	asking  chan struct{} // closed with the answer; nil: there is no question
	unnamed bool          // code was seen that has no name yet
}

const (
	askAgain     = 10 * time.Second
	askAtMost    = 5 * time.Minute // apart, where answers bring nothing new
	askNotBefore = time.Second     // after the process began: let the runtime start
	maxManaged   = 256             // processes
	keptAnswers  = 2               // code that is gone by the last was there by the one before
)

func newManaged(log *slog.Logger) *managed {
	m := &managed{log: log, age: ageOf, now: time.Now, processes: map[int]*managedProcess{},
		byKey: map[string]*managedProcess{}, ahead: map[string]map[uint64]dotnet.Method{}, files: map[string]*binfile.PE{}}
	m.ask, m.ended = m.asker.Ask, make(chan struct{})
	return m
}

// How long the end waits for processes that were asked and have not answered:
// first without a word.
const (
	quietly = dotnet.Patience
	longest = time.Minute
)

// close begins no more questions and waits for those begun: to leave one can
// crash the process that was asked.
func (m *managed) close() {
	close(m.ended)
	m.done.Wait()
	if m.asker.Finish(quietly) {
		return
	}
	m.log.Warn("waiting for .NET processes that were asked for names to answer", "at most", longest)
	if !m.asker.Finish(longest) {
		m.log.Error("a .NET process was asked for names and has not answered: it may crash when it does")
	}
}

// meet asks a process in which .NET was found: a new one, whatever had its
// number before.
func (m *managed) meet(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(pid)
	for known := range m.processes {
		if len(m.processes) < maxManaged {
			break
		}
		m.forget(known)
	}
	m.begin(m.process(pid))
}

// forget drops a process. The lock is held.
func (m *managed) forget(pid int) {
	if p := m.processes[pid]; p != nil {
		delete(m.processes, pid)
		delete(m.byKey, p.key)
	}
}

// process finds or adds a process. The lock is held.
func (m *managed) process(pid int) *managedProcess {
	p := m.processes[pid]
	if p == nil {
		p = &managedProcess{pid: pid, key: fmt.Sprintf("dotnet-%d-%d", pid, m.now().UnixNano()), every: askAgain}
		m.processes[pid], m.byKey[p.key] = p, p
	}
	return p
}

// begin asks, unless that was done lately. The lock is held.
func (m *managed) begin(p *managedProcess) {
	if p.asking != nil || !p.asked.IsZero() && m.now().Sub(p.asked) < p.every {
		return
	}
	m.question(p)
}

// question asks a process, apart from all else. The lock is held.
func (m *managed) question(p *managedProcess) {
	answered := make(chan struct{})
	p.asking, p.asked = answered, m.now()
	m.done.Go(func() {
		defer close(answered)
		methods, err := m.inquire(p.pid)
		if err != nil {
			m.log.Info("names of .NET", "pid", p.pid, "error", err)
		}
		files := filesOf(p.pid)
		m.mu.Lock()
		defer m.mu.Unlock()
		p.asking = nil
		m.answer(p, methods, files)
	})
}

var errEnded = errors.New("the recording has ended")

// inquire asks, once the runtime has had time to start.
func (m *managed) inquire(pid int) (dotnet.Methods, error) {
	select {
	case <-time.After(askNotBefore - m.age(pid)):
	case <-m.ended:
		return dotnet.Methods{}, errEnded
	}
	ctx, cancel := context.WithTimeout(context.Background(), dotnet.Patience) // see dotnet.Asker: it must not be broken off
	defer cancel()
	return m.ask(ctx, pid)
}

// ageOf tells how long ago a process began, as far as that is known.
func ageOf(pid int) time.Duration {
	stat, err := proc.FS{}.Stat(pid)
	if err != nil {
		return 0
	}
	boot, err := proc.BootTime()
	if err != nil {
		return 0
	}
	return time.Since(boot.Add(stat.Started))
}

// answer keeps what a process told. The lock is held.
func (m *managed) answer(p *managedProcess, methods dotnet.Methods, files []managedFile) {
	if methods.Len() == 0 || len(p.methods) > 0 && methods.Len() == p.methods[0].Len() {
		p.every = min(2*p.every, askAtMost)
	} else {
		p.every = askAgain
	}
	if methods.Len() == 0 {
		return
	}
	p.methods = append([]dotnet.Methods{methods}, p.methods[:min(len(p.methods), keptAnswers-1)]...)
	for _, f := range files {
		for method := range methods.Within(f.mapping.Start, f.mapping.End) {
			offset := method.Start - f.mapping.Start + f.mapping.Offset
			known := m.ahead[f.pe.BuildID]
			if known == nil {
				known = map[uint64]dotnet.Method{}
				m.ahead[f.pe.BuildID], m.files[f.pe.BuildID] = known, f.pe
			}
			known[offset] = method
		}
	}
}

// managedFile is a file of code that was compiled ahead, mapped by a process.
type managedFile struct {
	mapping proc.Mapping
	pe      *binfile.PE
}

// filesOf finds those of a process.
func filesOf(pid int) (files []managedFile) {
	mappings, err := proc.FS{}.Executable(pid)
	if err != nil {
		return nil
	}
	for _, mapping := range mappings {
		if !mapping.HasFile() || strings.Contains(path.Base(mapping.Path), ".so") {
			continue
		}
		f, err := proc.FS{}.MapFile(pid, mapping)
		if err != nil {
			continue
		}
		if pe, err := binfile.NewPE(f); err == nil {
			files = append(files, managedFile{mapping, pe})
		}
		f.Close()
	}
	return files
}

// location is what an address of a process is until it has its name.
func (m *managed) location(pid int, address uint64) profile.Location {
	m.mu.Lock()
	defer m.mu.Unlock()
	return profile.Location{Kind: profile.KindDotNet, BuildID: m.process(pid).key, Offset: address}
}

// name names what is known by now, and asks for what is not.
func (m *managed) name(w *profile.Window) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range w.Locations {
		m.nameAt(w, i)
	}
	for _, p := range m.processes {
		if p.unnamed {
			m.begin(p)
		}
	}
}

// nameAt names one location. The lock is held.
func (m *managed) nameAt(w *profile.Window, i int) {
	l := &w.Locations[i]
	if p := m.byKey[l.BuildID]; p != nil {
		for _, methods := range p.methods {
			if method, ok := methods.Find(l.Offset); ok {
				f := profile.Frame{Function: method.Name, Kind: profile.KindDotNet}
				*l, w.Names[i] = profile.Location{Kind: profile.KindDotNet, Name: f.Function}, []profile.Frame{f}
				return
			}
		}
		p.unnamed = true
		return
	}
	if pe := m.files[l.BuildID]; pe != nil && len(w.Names[i]) == 0 {
		if function, ok := pe.Function(l.Offset); ok {
			if method, ok := m.ahead[l.BuildID][function.Start]; ok {
				w.Names[i] = []profile.Frame{{Function: method.Name, Kind: profile.KindDotNet}}
			}
		}
	}
}

// settle asks once more for what has no name yet, and waits for the answers,
// but not for long.
func (m *managed) settle() {
	m.mu.Lock()
	var answers []chan struct{}
	for _, p := range m.processes {
		if p.unnamed && p.asking == nil {
			m.question(p)
		}
		if p.asking != nil {
			answers = append(answers, p.asking)
		}
	}
	m.mu.Unlock()
	patience := time.After(dotnet.Patience + askNotBefore)
	for _, answer := range answers {
		select {
		case <-answer:
		case <-patience:
			return
		}
	}
}

// finish names a window for good. What still has no name is one place: addresses
// mean nothing to others.
func (m *managed) finish(w *profile.Window) (*profile.Window, error) {
	m.name(w)
	m.mu.Lock()
	for i := range w.Locations {
		if l := &w.Locations[i]; l.Kind == profile.KindDotNet && l.BuildID != "" {
			*l = codeMade
		}
	}
	used := len(m.processes) > 0
	m.mu.Unlock()
	if !used {
		return w, nil
	}
	return profile.Merge(w) // many addresses are one method
}

// codeMade is code made at run time that has no name.
var codeMade = profile.Location{Kind: profile.KindJIT, Name: "[code made at run time]"}
