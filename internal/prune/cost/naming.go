package cost

import (
	"context"
	"os"
	"strings"
	"time"

	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/symbol"
	"atys.dev/atys/internal/wire"
)

// namer forgets the names of a window's code, and has them found again from a cold
// start each time: nothing in memory, but tables of symbols in the cache on disk,
// and the kernel's symbols read, as an agent has both when it meets a program that
// it has met before. What only the process itself knew (methods of Java, functions
// of Python) is named when a window is cut, and stays.
type namer struct {
	files    map[string]string // by build-id, of those that are here
	kernel   *symbol.Kernel
	folder   string
	cache    *diskcache.Cache // in that
	forget   []bool           // of the window's locations: are found again
	nameable int
	unnamed  int
	packer   *wire.Packer // as agents keep one
}

// newNamer looks which names can be found on this machine, and reads what the cache
// is to have.
func newNamer(ctx context.Context, w *profile.Window) (n *namer, err error) {
	n = &namer{files: map[string]string{}, kernel: symbol.NewKernel("/proc", "/sys", time.Now), forget: make([]bool, len(w.Locations)), packer: wire.NewPacker()}
	if n.folder, err = os.MkdirTemp("", "atys-prune"); err != nil {
		return nil, err
	}
	if n.cache, err = diskcache.Open(n.folder, diskcache.Options{}); err != nil {
		n.close()
		return nil, err
	}
	for i, l := range w.Locations {
		switch {
		case l.BuildID == "" || l.Name != "":
			continue
		case l.Kind == profile.KindKernel || n.here(l.BuildID, w.Names[i]):
			n.forget[i] = true
			n.nameable++
		default:
			n.unnamed++
		}
	}
	first := n.cold()
	first.Name(ctx, n.unnamedCopy(w))
	return n, first.Close() // which writes the cache
}

func (n *namer) close() {
	_ = n.cache.Close()
	os.RemoveAll(n.folder)
}

// here tells whether the file that holds a location is.
func (n *namer) here(buildID string, names []profile.Frame) bool {
	if n.files[buildID] != "" {
		return true
	}
	if len(names) == 0 || !strings.HasPrefix(names[len(names)-1].Mapping, "/") {
		return false
	}
	path := names[len(names)-1].Mapping
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	n.files[buildID] = path
	return true
}

// unnamedCopy is a window as it was before it was named.
func (n *namer) unnamedCopy(w *profile.Window) *profile.Window {
	c := copyOf(w)
	for i, forget := range n.forget {
		if forget {
			c.Names[i] = nil
		}
	}
	return c
}

// cold is a resolver that has named nothing yet.
func (n *namer) cold() *symbol.Resolver {
	r := symbol.New(symbol.Options{Cache: n.cache, Kernel: n.kernel})
	for buildID, path := range n.files {
		r.AddFile(buildID, path, func() (*os.File, error) { return os.Open(path) })
	}
	return r
}
