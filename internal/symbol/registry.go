package symbol

import (
	"maps"
	"os"
	"slices"
	"sync"
)

// registry knows where the file of each build-id can be opened.
type registry struct {
	maxFiles int

	mu      sync.Mutex // guards all below, and each module's origin
	modules map[string]*module
	held    int // files held open in origins
}

// AddFile tells where the file of a build-id can be opened (such as
// /proc/PID/map_files/... or a path below /proc/PID/root), and the path by which
// it is known. The file is opened at once, since its process may be gone when
// the first name is wanted, unless the bound of open files is reached; it is
// read only when a name is wanted. Further calls for the same build-id add
// places to try.
func (r *registry) AddFile(buildID, displayPath string, open func() (*os.File, error)) {
	r.mu.Lock()
	m := r.module(buildID)
	if m.path == "" {
		m.path = displayPath
	}
	if len(m.openers) == maxOpeners {
		m.openers = slices.Delete(m.openers, 0, 1) // the oldest process is the likeliest to be gone
	}
	m.openers = append(m.openers, open)
	m.added++
	wanted := m.held == nil && !m.settled && r.held < r.maxFiles
	if wanted {
		r.held++ // reserved while mu is not held: opening may take long
	}
	r.mu.Unlock()
	if !wanted {
		return
	}
	f, err := open()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || m.held != nil || m.settled {
		if err == nil {
			f.Close()
		}
		r.held--
		return
	}
	m.held = f
}

// module finds or makes the module of a build-id. mu is held.
func (r *registry) module(buildID string) *module {
	m, ok := r.modules[buildID]
	if !ok {
		m = &module{id: buildID}
		r.modules[buildID] = m
	}
	return m
}

// find gives the module of a build-id; nil if no file was added for it.
func (r *registry) find(buildID string) *module {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.modules[buildID]
}

// those lists modules of a kind.
func (r *registry) those(kind func(*module) bool) (list []*module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.modules {
		if kind(m) {
			list = append(list, m)
		}
	}
	return list
}

// empty removes all modules.
func (r *registry) empty() []*module {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Collect(maps.Values(r.modules))
	clear(r.modules)
	return all
}

// origin tells where the file of a module can be opened, and hands over the one that
// is held open, if any. added grows with every further origin.
func (r *registry) origin(m *module) (held *os.File, openers []func() (*os.File, error), added int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hand(m), slices.Clone(m.openers), m.added
}

// settle says whether a module needs no file held open any more, and then hands over
// the one that is.
func (r *registry) settle(m *module, settled bool) (held *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.settled = settled; settled {
		held = r.hand(m)
	}
	return held
}

// hand gives up the file that is held for a module. mu is held.
func (r *registry) hand(m *module) *os.File {
	held := m.held
	if held != nil {
		m.held = nil
		r.held--
	}
	return held
}

// release closes a file that was held for a module and never read.
func (r *registry) release(m *module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held := r.hand(m); held != nil {
		held.Close()
	}
	m.settled = true // an AddFile under way closes what it opens
}
