package symbol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/binfile/debugfile"
	"atys.dev/atys/internal/binfile/dwarf"
	"atys.dev/atys/internal/binfile/gopclntab"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/profile"
)

const (
	maxOpeners = 4
	// Frames of so many locations of one file are kept ready; a profile of
	// one file rarely has more.
	maxReadyFrames = 1 << 16
)

// module is all that is known of one build-id.
type module struct {
	id string
	// content is what the file holds that was opened first; guarded by Resolver.work.
	content diskcache.Content

	// The origin of the file; guarded by registry.mu.
	path    string
	openers []func() (*os.File, error)
	added   int      // calls of AddFile
	held    *os.File // opened by AddFile, not read yet
	settled bool     // held is not needed any more

	// What was loaded; guarded by Resolver.work.
	loaded bool
	failed error // why the file could not be opened
	tried  int   // added, when failed was found
	tables tables
	dirty  bool // tables have more than the disk cache
	file   *binfile.File
	debug  *binfile.File // of its own, nil if the file itself has the debug information
	shared *binfile.File // what dwz factored out of debug files
	goTab  *gopclntab.Table
	dwarf  *dwarf.Data
	ready  map[uint32]answer
	names  map[string]named
	used   uint64    // loader.clock when last asked
	read   time.Time // when last asked for what was not ready
}

// tables is what is kept of a file, in memory and on disk.
type tables struct {
	flags     uint32
	functions functionsTable
	index     indexTable
	units     map[uint32]unitTable // those that were asked for
	unitBytes int64                // of units
	sources   []debugSource        // separate debug files that the above is made from
	mapped    *diskcache.Entry     // what of the above is in the cache
}

// release gives up what is mapped. Nothing of the tables may be used behind it.
func (t *tables) release() {
	if t.mapped != nil {
		t.mapped.Close()
	}
	*t = tables{}
}

// rest has what is mapped take no memory until it is asked for again: it is in the
// kernel's cache of files then, which others can have.
func (t *tables) rest() {
	if t.mapped != nil {
		t.mapped.Rest()
	}
}

func (t *tables) mappedBytes() int64 {
	if t.mapped == nil {
		return 0
	}
	return int64(len(t.mapped.Content))
}

func (t *tables) addUnit(key uint32, unit unitTable) {
	if t.units == nil {
		t.units = map[uint32]unitTable{}
	}
	t.unitBytes += int64(len(unit)) - int64(len(t.units[key]))
	t.units[key] = unit
}

const (
	flagGo      = 1 << iota // the file has a Go function table, which is read in place
	flagDebug               // there was a debug file, or debug information in the file itself
	flagIndexed             // debug information was looked for
	flagSymtab              // the file has all of its symbols
)

type answer struct {
	frames []profile.Frame
	ok     bool
}

// named is a linker name made readable; linkage is empty where nothing changed.
type named struct{ function, linkage string }

var errReplaced = errors.New("the file is another one than what was running")

// loader reads what the files of modules tell, keeps it within the bounds of the
// options, and names places by it. It is not safe for concurrent use.
type loader struct {
	options Options
	files   *registry
	finder  *debugfile.Finder
	cache   *tableCache

	clock  uint64
	open   map[*module]bool // modules with files open
	tended time.Time
}

// lookup names a location of a module. The context bounds downloads.
func (l *loader) lookup(ctx context.Context, m *module, at profile.Location) ([]profile.Frame, bool) {
	l.clock++
	m.used = l.clock
	if at.Offset <= math.MaxUint32 {
		off := uint32(at.Offset)
		if a, ok := m.ready[off]; ok {
			return ofKind(a.frames, at.Kind), a.ok
		}
		m.read = l.options.Now()
		if err := l.ensureLoaded(ctx, m); err == nil {
			frames, ok := l.frames(ctx, m, off)
			if len(frames) == 0 {
				frames = []profile.Frame{profile.Unnamed(profile.KindNative, m.path, at.Offset)}
			}
			if m.ready == nil || len(m.ready) >= maxReadyFrames {
				m.ready = map[uint32]answer{}
			}
			if ctx.Err() == nil { // else a download may have been broken off
				m.ready[off] = answer{frames, ok}
			}
			return ofKind(frames, at.Kind), ok
		}
	}
	return []profile.Frame{profile.Unnamed(at.Kind, m.path, at.Offset)}, false
}

// ofKind gives frames the kind of the location asked for; nearly always they
// have it.
func ofKind(frames []profile.Frame, kind profile.Kind) []profile.Frame {
	if frames[0].Kind == kind {
		return frames
	}
	out := make([]profile.Frame, len(frames))
	for i, f := range frames {
		f.Kind = kind
		out[i] = f
	}
	return out
}

// frames names an offset by the best source that covers it.
func (l *loader) frames(ctx context.Context, m *module, off uint32) ([]profile.Frame, bool) {
	if m.tables.flags&flagGo != 0 {
		if frames, ok := l.goFrames(m, off); ok {
			return frames, true
		}
	}
	linkage, ok := m.tables.functions.lookup(off)
	brokenOff := m.tables.flags&(flagGo|flagIndexed) == 0
	if (ok || brokenOff) && m.tables.flags&flagIndexed == 0 && l.openFile(m) == nil {
		if l.index(ctx, m); brokenOff && m.debug != nil {
			m.tables.functions = l.functions(m)
			linkage, ok = m.tables.functions.lookup(off)
		}
		m.dirty = true
	}
	frames, named := l.debugFrames(ctx, m, off)
	if start, nameless := namelessStart(linkage); nameless {
		if !named {
			return []profile.Frame{profile.Unnamed(profile.KindNative, m.path, start)}, false
		}
		linkage, ok = "", false
	}
	if !named && !ok {
		return nil, false
	}
	if len(frames) == 0 {
		frames = []profile.Frame{{}}
	}
	if ok {
		// The symbol knows better than the debug information which part or
		// clone of the function this is.
		frames[len(frames)-1].Function, frames[len(frames)-1].Linkage = linkage, linkage
	}
	for i := range frames {
		f := &frames[i]
		n := m.name(cmp.Or(f.Linkage, f.Function))
		f.Function, f.Linkage = n.function, n.linkage
		f.Mapping, f.Kind = m.path, profile.KindNative
	}
	// Without its name an inlined call is only noise.
	frames = slices.DeleteFunc(frames, func(f profile.Frame) bool { return f.Function == "" })
	return frames, len(frames) > 0
}

// debugFrames asks the unit of debug information that covers an offset.
func (l *loader) debugFrames(ctx context.Context, m *module, off uint32) ([]profile.Frame, bool) {
	number, ok := m.tables.index.lookup(off)
	if !ok {
		return nil, false
	}
	unit, ok := m.tables.units[number]
	if !ok {
		if l.openFile(m) != nil || l.openDebug(ctx, m) != nil {
			return nil, false
		}
		unit = encodeUnit(m.dwarf.Flatten(number), m.place)
		m.tables.addUnit(number, unit)
		m.dirty = true
		l.bound(m)
	}
	return unit.frames(off)
}

// place gives the file offset of an address of code.
func (m *module) place(address uint64) (uint32, bool) {
	off, ok := m.file.Offset(address)
	return uint32(off), ok && off <= math.MaxUint32
}

func (l *loader) goFrames(m *module, off uint32) ([]profile.Frame, bool) {
	if m.goTab == nil {
		if err := l.openFile(m); err != nil {
			return nil, false
		}
		table, err := gopclntab.New(m.file)
		if err != nil {
			m.tables.flags &^= flagGo
			return nil, false
		}
		m.goTab = table
	}
	pc, ok := m.file.Address(uint64(off))
	if !ok {
		return nil, false
	}
	found, ok := m.goTab.Lookup(pc)
	if !ok {
		return nil, false
	}
	frames := make([]profile.Frame, len(found))
	for i, f := range found {
		n := m.goName(f.Function)
		frames[i] = profile.Frame{Function: n.function, Linkage: n.linkage, File: f.File, Line: f.Line,
			StartLine: f.StartLine, Mapping: m.path, Kind: profile.KindNative, Inlined: f.Inlined}
	}
	return frames, true
}

// goName shows type arguments as the Go runtime does in its own profiles and
// tracebacks: main.Map[...].
func (m *module) goName(linkage string) named {
	if i, j := strings.IndexByte(linkage, '['), strings.LastIndexByte(linkage, ']'); i >= 0 && i < j {
		return m.intern(linkage, linkage[:i]+"[...]"+linkage[j+1:])
	}
	return m.intern(linkage, linkage)
}

func (m *module) name(linkage string) named {
	if n, ok := m.names[linkage]; ok {
		return n
	}
	return m.intern(linkage, demangled(linkage))
}

// intern keeps one copy of each name.
func (m *module) intern(linkage, function string) named {
	if n, ok := m.names[linkage]; ok {
		return n
	}
	n := named{function: function}
	if linkage != function {
		n.linkage = linkage
	}
	if m.names == nil {
		m.names = map[string]named{}
	}
	m.names[linkage] = n
	return n
}

// ensureLoaded fills a module's tables, from the disk cache or from its files.
func (l *loader) ensureLoaded(ctx context.Context, m *module) error {
	if m.loaded {
		return nil
	}
	if m.content == "" && l.cache.disk != nil { // it is a name for what the cache has
		if err := l.openFile(m); err != nil {
			return err
		}
	}
	if t, ok := l.cache.load(m.id, m.content); ok {
		if !l.outdoes(m, t.flags) {
			m.tables, m.loaded = t, true
			l.settle(m)
			return nil
		}
		t.release()
	}
	if err := l.openFile(m); err != nil {
		return err
	}
	l.build(ctx, m)
	m.loaded, m.dirty = true, true
	l.settle(m)
	return nil
}

// outdoes tells whether there is more than tables were made of: a debug file
// that was installed since, or a file of the same build that was not stripped.
func (l *loader) outdoes(m *module, flags uint32) bool {
	if flags&flagDebug != 0 || flags&flagGo != 0 {
		return false
	}
	if flags&flagIndexed == 0 { // a download was broken off
		return true
	}
	if l.finder.Local(binfile.Unqualified(m.id)) != "" {
		return true
	}
	if l.openFile(m) != nil {
		return false
	}
	return flags&flagSymtab == 0 && m.file.Section(".symtab") != nil ||
		m.file.Section(".debug_info") != nil || m.file.Section(".zdebug_info") != nil
}

// build collects what the file of a module and its debug files offer.
func (l *loader) build(ctx context.Context, m *module) {
	if table, err := gopclntab.New(m.file); err == nil {
		m.goTab = table
		m.tables.flags |= flagGo
	}
	if m.file.Section(".symtab") != nil {
		m.tables.flags |= flagSymtab
	}
	if m.goTab == nil {
		l.index(ctx, m)
	} // else only if there is C code in it, and somebody asks: Go's is large
	m.tables.functions = l.functions(m)
}

// functions collects the symbols of a module's file and of its debug files.
func (l *loader) functions(m *module) functionsTable {
	var more []*binfile.File
	if mini, err := m.file.MiniDebug(); err == nil {
		more = append(more, mini)
	}
	if m.debug != nil {
		more = append(more, m.debug)
	}
	return encodeFunctions(gatherSpans(m.file, more...))
}

// index finds out which unit of the debug information covers what. Where the context
// ends a download, flagIndexed is not set, so that a later look-up tries again.
func (l *loader) index(ctx context.Context, m *module) {
	err := l.openDebug(ctx, m)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return
	}
	if err == nil {
		m.tables.index = encodeIndex(m.dwarf.Units(), m.place)
	}
	if m.dwarf != nil || m.debug != nil {
		m.tables.flags |= flagDebug
	}
	m.tables.flags |= flagIndexed
}

// openDebug opens the debug information of a module whose file is open.
func (l *loader) openDebug(ctx context.Context, m *module) error {
	if m.dwarf != nil {
		return nil
	}
	from := m.file
	var err error
	if m.dwarf, err = dwarf.New(m.file, nil); err != nil {
		if m.debug == nil {
			if m.debug, err = l.finder.Find(ctx, m.file, m.path); err != nil {
				return err
			}
		}
		from = m.debug
	}
	if _, _, ok := from.AltLink(); ok {
		m.shared, err = l.finder.FindAlt(ctx, from, m.path)
		if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			m.closeDebug()
			return err
		}
	}
	l.noteSources(m, m.debug, m.shared)
	if m.dwarf == nil || m.shared != nil {
		if m.dwarf != nil {
			m.dwarf.Close()
		}
		if m.dwarf, err = dwarf.New(from, m.shared); err != nil {
			m.dwarf = nil
			return err
		}
	}
	m.dwarf.OpenSplit = func(compDir, name string) (*binfile.File, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(compDir, name)
		}
		f, err := binfile.Open(name)
		if err == nil {
			l.noteSources(m, f)
		}
		return f, err
	}
	return nil
}

// noteSources records debug files that a module's tables are made from. If one has
// changed since, the tables are not cached: they would mix both versions.
func (l *loader) noteSources(m *module, files ...*binfile.File) {
	for _, f := range files {
		if err := m.tables.addSource(f); err != nil {
			m.content = ""
		}
	}
}

// openFile opens the file of a module, if it is not open, and makes sure that it
// is the right one.
func (l *loader) openFile(m *module) error {
	if m.file != nil {
		return nil
	}
	held, openers, added := l.files.origin(m)
	if m.failed != nil && m.tried == added && held == nil {
		return m.failed
	}
	err := fmt.Errorf("build-id %q: nobody told where its file is", m.id)
	if held != nil {
		if m.file, err = l.openChecked(held, m); err == nil {
			return nil
		}
	}
	// The latest process is the likeliest to be there still.
	for i := len(openers) - 1; i >= 0; i-- {
		f, openErr := openers[i]()
		if openErr != nil {
			err = openErr
			continue
		}
		if m.file, err = l.openChecked(f, m); err == nil {
			return nil
		}
	}
	m.failed, m.tried = err, added
	return err
}

// openChecked reads an open file, if it is a module's: of its build-id and, once
// that is known, with its content.
func (l *loader) openChecked(f *os.File, m *module) (*binfile.File, error) {
	b, err := binfile.FromFile(f)
	if err != nil {
		return nil, err
	}
	if b.BuildID() != binfile.Unqualified(m.id) {
		b.Close()
		return nil, fmt.Errorf("%q: %w", f.Name(), errReplaced)
	}
	content := l.cache.content(b)
	if m.content != "" && content != m.content {
		b.Close()
		return nil, fmt.Errorf("%q: %w", f.Name(), errReplaced)
	}
	m.content = content
	return b, nil
}
