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
func (l *loader) settle(m *module) {
	held := l.files.settle(m, true)
	if m.tables.flags&flagGo == 0 && len(m.tables.index) == 0 {
		l.closeFiles(m)
		if held != nil {
			held.Close()
		}
	} else if held != nil && m.file == nil {
		if f, err := l.openChecked(held, m); err == nil {
			m.file = f
		}
	} else if held != nil {
		held.Close()
	}
	if m.file != nil {
		l.open[m] = true
	}
	l.bound(m)
}

// bound keeps the open files and the tables within what the options allow, by
// giving up what was not asked for longest. What m holds stays.
func (l *loader) bound(m *module) {
	if m.file != nil {
		l.open[m] = true
	}
	for len(l.open) > l.options.MaxFiles {
		oldest := m
		for o := range l.open {
			if o.used < oldest.used {
				oldest = o
			}
		}
		if oldest == m {
			break
		}
		l.closeFiles(oldest)
	}
	loaded := l.files.those(func(o *module) bool { return o.loaded && o != m })
	total := m.bytes()
	for _, o := range loaded {
		total += o.bytes()
	}
	if total <= l.options.MemoryBytes {
		return
	}
	slices.SortFunc(loaded, func(a, b *module) int { return int(int64(a.used) - int64(b.used)) })
	for _, o := range loaded {
		if total <= l.options.MemoryBytes {
			return
		}
		total -= o.bytes()
		// What cannot be written is read again when it is needed.
		_ = l.save(o)
		l.unload(o)
	}
}

// bytes estimates what a module takes in memory, without what is mapped.
func (m *module) bytes() int64 {
	const perFrame, perName = 200, 100
	n := len(m.tables.functions) + len(m.tables.index) + len(m.ready)*perFrame + len(m.names)*perName
	return int64(n) + m.tables.unitBytes - (m.tables.mappedBytes())
}

// unload forgets what was read of a module; the next look-up reads it again.
func (l *loader) unload(m *module) {
	l.closeFiles(m)
	m.tables.release()
	m.ready, m.names, m.loaded, m.dirty = nil, nil, false, false
	l.files.settle(m, false)
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

func (l *loader) closeFiles(m *module) {
	delete(l.open, m)
	m.closeDebug()
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
}

// tend does now and then what keeps a loader small: tables that grew go to the disk
// cache, and debug information that was not read lately is closed.
func (l *loader) tend() {
	now := l.options.Now()
	if now.Sub(l.tended) < tendEvery {
		return
	}
	l.tended = now
	closed := false
	for m := range l.open {
		if now.Sub(m.read) >= idleAfter {
			closed = m.closeDebug() || closed
		}
	}
	if closed { // megabytes each, of which the runtime would let go little by little, for minutes
		debug.FreeOSMemory()
	}
	if l.cache.disk != nil {
		l.flush()
	}
}

// flush writes tables that grew, and releases the memory of those that are on disk.
func (l *loader) flush() {
	for _, m := range l.files.those(func(m *module) bool { return m.dirty }) {
		if l.save(m) == nil { // a full disk costs the next start some time, nothing else
			l.remap(m)
		}
	}
	for _, m := range l.files.those(func(m *module) bool { return m.tables.mapped != nil }) {
		m.tables.rest()
	}
}

// remap has a module go on with its tables as the disk cache has them.
func (l *loader) remap(m *module) {
	if t, ok := l.cache.load(m.id, m.content); ok {
		m.tables.release()
		m.tables = t
	}
}

// save writes a module's tables to the disk cache, if they have more than that.
func (l *loader) save(m *module) error {
	if !m.dirty || !m.loaded {
		return nil
	}
	m.dirty = false
	if m.file != nil && l.cache.disk != nil && !l.cache.disk.Unchanged(m.file.OSFile(), wholeFile, m.content) {
		return diskcache.ErrChanged
	}
	return l.cache.save(m.id, m.content, m.tables)
}
