package symbol

import (
	"runtime/debug"
	"slices"
	"time"

	"atys.dev/atys/internal/diskcache"
)

const (
	tendEvery = 30 * time.Second // tables that grew are written to the disk cache so often
	idleAfter = 2 * time.Minute  // what is open of a module and was not read for so long is closed
)

// settle is called when a module's tables are there. Its file stays open where
// more may be read of it later; the process it came from may be gone by then.
// work is held.
func (r *Resolver) settle(m *module) {
	r.mu.Lock()
	m.settled = true
	held := m.held
	if held != nil {
		m.held = nil
		r.held--
	}
	r.mu.Unlock()
	if m.tables.flags&flagGo == 0 && len(m.tables.index) == 0 {
		r.closeFiles(m)
		if held != nil {
			held.Close()
		}
	} else if held != nil && m.file == nil {
		if f, err := r.openChecked(held, m); err == nil {
			m.file = f
		}
	} else if held != nil {
		held.Close()
	}
	if m.file != nil {
		r.open[m] = true
	}
	r.bound(m)
}

// bound keeps the open files and the tables within what the options allow, by
// giving up what was not asked for longest. What m holds stays.
func (r *Resolver) bound(m *module) {
	if m.file != nil {
		r.open[m] = true
	}
	for len(r.open) > r.options.MaxFiles {
		oldest := m
		for o := range r.open {
			if o.used < oldest.used {
				oldest = o
			}
		}
		if oldest == m {
			break
		}
		r.closeFiles(oldest)
	}
	r.mu.Lock()
	loaded := make([]*module, 0, len(r.modules))
	for _, o := range r.modules {
		if o.loaded && o != m {
			loaded = append(loaded, o)
		}
	}
	r.mu.Unlock()
	total := m.bytes()
	for _, o := range loaded {
		total += o.bytes()
	}
	if total <= r.options.MemoryBytes {
		return
	}
	slices.SortFunc(loaded, func(a, b *module) int { return int(int64(a.used) - int64(b.used)) })
	for _, o := range loaded {
		if total <= r.options.MemoryBytes {
			return
		}
		total -= o.bytes()
		// What cannot be written is read again when it is needed.
		_ = r.save(o)
		r.unload(o)
	}
}

// Shed gives up all tables and open files: they are read again where names are
// asked for, from the disk cache where their file is gone.
func (r *Resolver) Shed() {
	r.work.Lock()
	defer r.work.Unlock()
	for _, m := range r.those(func(m *module) bool { return m.loaded }) {
		_ = r.save(m) // what cannot be written is read again
		r.unload(m)
	}
}

// those lists modules of a kind.
func (r *Resolver) those(kind func(*module) bool) (list []*module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.modules {
		if kind(m) {
			list = append(list, m)
		}
	}
	return list
}

// bytes estimates what a module takes in memory, without what is mapped.
func (m *module) bytes() int64 {
	const perFrame, perName = 200, 100
	n := len(m.tables.functions) + len(m.tables.index) + len(m.ready)*perFrame + len(m.names)*perName
	return int64(n) + m.tables.unitBytes - (m.tables.mappedBytes())
}

// unload forgets what was read of a module; the next look-up reads it again.
func (r *Resolver) unload(m *module) {
	r.closeFiles(m)
	m.tables.release()
	m.ready, m.names, m.loaded, m.dirty = nil, nil, false, false
	r.mu.Lock()
	m.settled = false
	r.mu.Unlock()
}

// closeDebug closes what is open of a module but its file, which could be gone when
// it is asked for again: caches, and sections that were unpacked, 20 MB of a C
// library. It takes a tenth of a second to have those again. It tells whether any
// was open.
func (m *module) closeDebug() (closed bool) {
	closed = m.dwarf != nil || m.debug != nil || m.shared != nil
	m.goTab = nil
	if m.dwarf != nil {
		m.dwarf.Close()
		m.dwarf = nil
	}
	if m.debug != nil {
		m.debug.Close()
		m.debug = nil
	}
	if m.shared != nil {
		m.shared.Close()
		m.shared = nil
	}
	return closed
}

func (r *Resolver) closeFiles(m *module) {
	delete(r.open, m)
	m.closeDebug()
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
}

// release closes a file that was held for a module and never read.
func (r *Resolver) release(m *module) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.held != nil {
		m.held.Close()
		m.held = nil
		r.held--
	}
	m.settled = true // an AddFile under way closes what it opens
}

// tend does now and then what keeps a resolver small: tables that grew go to the disk
// cache, and what nobody reads is let go of.
func (r *Resolver) tend() {
	r.work.Lock()
	defer r.work.Unlock()
	now := r.options.Now()
	if now.Sub(r.tended) < tendEvery {
		return
	}
	r.tended = now
	closed := false
	for m := range r.open {
		if now.Sub(m.read) >= idleAfter {
			closed = m.closeDebug() || closed
		}
	}
	if closed { // megabytes each, of which the runtime would let go little by little, for minutes
		debug.FreeOSMemory()
	}
	if r.cache.disk != nil {
		r.flush()
	}
}

// flush writes tables that grew, and lets go of what was read of those that lie on
// disk. work is held.
func (r *Resolver) flush() {
	for _, m := range r.those(func(m *module) bool { return m.dirty }) {
		if r.save(m) == nil { // a full disk costs the next start some time, nothing else
			r.remap(m)
		}
	}
	for _, m := range r.those(func(m *module) bool { return m.tables.mapped != nil }) {
		m.tables.rest()
	}
}

// remap has a module go on with its tables as the disk cache has them.
func (r *Resolver) remap(m *module) {
	if t, ok := r.cache.load(m.id, m.content); ok {
		m.tables.release()
		m.tables = t
	}
}

// save writes a module's tables to the disk cache, if they have more than that.
func (r *Resolver) save(m *module) error {
	if !m.dirty || !m.loaded {
		return nil
	}
	m.dirty = false
	if m.file != nil && r.cache.disk != nil && !r.cache.disk.Unchanged(m.file.OSFile(), wholeFile, m.content) {
		return diskcache.ErrChanged
	}
	return r.cache.save(m.id, m.content, m.tables)
}
