// Package symbol turns places in code into the names its developer gave them.
//
// The flow of Resolve, for code of a file:
//
//  1. AddFile told where the file of a build-id can be opened. Nothing is read
//     before a location asks for it; a file whose content has another build-id
//     is not used, so that a replaced binary gives no wrong names.
//  2. module.go collects what the file offers, or takes it from the disk cache
//     (cache.go): the symbols of the file and of its debug files (functions.go),
//     Go's function table, DWARF's lines and inlined calls (lines.go).
//  3. A look-up takes the best source that covers the offset: Go's table, else
//     DWARF within the function the symbols name, else the symbols alone.
//  4. What nothing names is binary+0xoffset: never the nearest symbol.
//
// Kernel code is named by kallsyms (kernel.go), code compiled while running by
// the map that its runtime writes (perfmap.go).
//
// Names are kept as the file has them, control characters included: whoever
// shows them must escape them.
package symbol

import (
	"cmp"
	"context"
	"path"
	"runtime"
	"slices"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile/debugfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
)

// Options of a Resolver. The zero value names with what this machine has, and
// keeps nothing on disk.
type Options struct {
	Cache       *diskcache.Cache // keeps tables, and downloaded debug files beside them; nil keeps none
	MemoryBytes int64            // bound of the tables in memory; 0 is 128 MiB
	MaxFiles    int              // bound of files held open; 0 is 128
	DebugDirs   []string         // roots of separate debug files; nil is /usr/lib/debug
	Debuginfod  []string         // servers asked for debug files; none are asked unless given
	Kernel      *Kernel          // nil is the running one
	Now         func() time.Time
}

const (
	defaultMemoryBytes = 128 << 20
	defaultMaxFiles    = 128
)

// Resolver names locations. It is safe for concurrent use; AddFile does not wait
// for naming that is under way.
type Resolver struct {
	*registry
	kernel *Kernel
	pace   cputime.Bucket

	work   sync.Mutex // guards loader
	loader loader
}

// New makes a resolver that knows no files yet.
func New(o Options) *Resolver {
	o.MemoryBytes = cmp.Or(o.MemoryBytes, defaultMemoryBytes)
	o.MaxFiles = cmp.Or(o.MaxFiles, defaultMaxFiles)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Kernel == nil {
		o.Kernel = NewKernel("/proc", "/sys", o.Now)
	}
	files := &registry{maxFiles: o.MaxFiles, modules: map[string]*module{}}
	finder := &debugfile.Finder{Dirs: o.DebugDirs, Servers: o.Debuginfod,
		CacheDir: o.Cache.Path(), Now: o.Now}
	return &Resolver{registry: files, kernel: o.Kernel, loader: loader{options: o, files: files, finder: finder,
		cache: newTableCache(o.Cache), open: map[*module]bool{}}}
}

// Resolve names a location: the calls inlined there innermost first, then the
// function that holds it. There is always at least one frame; where nothing
// names the place it is profile.Unnamed. Callers must not change the frames. The
// context bounds downloads of debug files only.
func (r *Resolver) Resolve(ctx context.Context, l profile.Location) []profile.Frame {
	frames, _ := r.resolve(ctx, l, false)
	return frames
}

// outcome is how naming a location ended.
type outcome uint8

const (
	unnamed  outcome = iota // nothing names it
	isNamed                 // it has a name
	deferred                // it may have one: reading its file waits, see Limit
)

func outcomeOf(ok bool) outcome {
	if ok {
		return isNamed
	}
	return unnamed
}

// resolve also tells whether there was a name. Within a limit it names what takes
// no reading, while the limit is exceeded.
func (r *Resolver) resolve(ctx context.Context, l profile.Location, limited bool) ([]profile.Frame, outcome) {
	switch {
	case l.Kind == profile.KindKernel:
		frames, ok := r.kernel.Frames(l)
		return frames, outcomeOf(ok)
	case l.Name != "":
		return []profile.Frame{{Function: l.Name, File: l.File, Line: l.Line, Kind: l.Kind}}, isNamed
	case l.BuildID == "":
		return []profile.Frame{profile.Unnamed(l.Kind, "", l.Offset)}, unnamed
	}
	r.work.Lock()
	defer r.work.Unlock()
	m := r.find(l.BuildID)
	if m == nil {
		return []profile.Frame{profile.Unnamed(l.Kind, l.BuildID, l.Offset)}, unnamed
	}
	if limited {
		return r.lookupWithin(ctx, m, l)
	}
	frames, ok := r.loader.lookup(ctx, m, l)
	return frames, outcomeOf(ok)
}

// Name fills the names of all locations of a window, and counts the samples
// whose leaf has none. Locations that were named before keep their names.
func (r *Resolver) Name(ctx context.Context, w *profile.Window) {
	if len(w.Names) < len(w.Locations) {
		w.Names = append(w.Names, make([][]profile.Frame, len(w.Locations)-len(w.Names))...)
	}
	limited := r.pace.Bounded()
	if limited {
		runtime.LockOSThread() // its clock tells what reading takes
		defer runtime.UnlockOSThread()
	}
	outcomes := make([]outcome, len(w.Locations))
	for _, i := range order(w, limited) {
		outcomes[i] = isNamed
		if names := w.Names[i]; len(names) > 0 && !names[0].IsUnnamed() {
			continue
		}
		w.Names[i], outcomes[i] = r.resolve(ctx, w.Locations[i], limited)
	}
	w.Losses = slices.DeleteFunc(w.Losses, func(l profile.Loss) bool { return l.Reason == profile.LossUnsymbolized })
	for _, l := range r.losses(w, outcomes) {
		w.AddLoss(l)
	}
	r.work.Lock()
	defer r.work.Unlock()
	r.loader.tend()
}

// maxLossDetails bounds how many files losses are told apart by.
const maxLossDetails = 16

// losses counts samples by the file in which their leaf has no name.
func (r *Resolver) losses(w *profile.Window, outcomes []outcome) []profile.Loss {
	byFile := map[string]profile.Loss{}
	for _, row := range w.Rows.All() {
		stack := w.Stacks[row.Stack].Locations
		if len(stack) == 0 || outcomes[stack[0]] == isNamed {
			continue
		}
		detail := "no name for code of " + path.Base("/"+w.Names[stack[0]][0].Mapping)
		if w.Locations[stack[0]].Kind == profile.KindKernel {
			if detail = "no name in the kernel"; r.kernel.Err() != nil {
				detail = r.kernel.Err().Error()
			}
		} else if w.Names[stack[0]][0].Mapping == "" {
			detail = "code of no known file"
		} else if outcomes[stack[0]] == deferred {
			detail = DetailDeferred
		}
		sum := byFile[detail]
		sum.Reason, sum.Detail = profile.LossUnsymbolized, detail
		sum.N += row.N
		if len(row.Values) > 0 {
			sum.Value += row.Values[0]
		}
		byFile[detail] = sum
	}
	losses := make([]profile.Loss, 0, len(byFile))
	for _, l := range byFile {
		losses = append(losses, l)
	}
	slices.SortFunc(losses, func(a, b profile.Loss) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Detail, b.Detail))
	})
	for i := maxLossDetails; i < len(losses); i++ {
		losses[i].Detail = "no name for code of other files"
	}
	return losses
}

// Close writes what is worth keeping and closes all files.
func (r *Resolver) Close() error {
	r.work.Lock()
	defer r.work.Unlock()
	for _, m := range r.empty() {
		_ = r.loader.save(m) // the cache says so, once
		r.loader.unload(m)
		r.release(m)
	}
	return nil
}

// Shed gives up all tables and open files: they are read again where names are
// asked for, from the disk cache where their file is gone.
func (r *Resolver) Shed() {
	r.work.Lock()
	defer r.work.Unlock()
	for _, m := range r.those(func(m *module) bool { return m.loaded }) {
		_ = r.loader.save(m) // what cannot be written is read again
		r.loader.unload(m)
	}
}
