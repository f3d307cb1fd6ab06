package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile/debugfile"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/symbol"
)

// Debug says where the server finds names of code that agents could not name.
type Debug struct {
	Dir     string   // where what was uploaded is kept; "": nothing can be
	Bytes   int64    // of it, of all of a tenant; 0: 20 GB
	Servers []string // debuginfod's that are asked
}

const (
	debugBytes = 20 << 30
	// nameEvery is how often what has come is named, nameAgain how long a file is
	// left alone that nobody had.
	nameEvery = 30 * time.Second
	nameAgain = 30 * time.Minute
	mostNames = 2000 // that are kept at once
)

// namer names what the windows of one tenant lack, with the files of that tenant
// alone: a build-id is what somebody says of a file.
type namer struct {
	log     *slog.Logger
	library *debugfile.Library
	finder  *debugfile.Finder
	cache   string
	now     func() time.Time

	mu       sync.Mutex // guards all below
	resolver *symbol.Resolver
	looked   map[string]time.Time // for files that nobody had, by build-id
	hopeless map[profile.Hash]bool
}

func newNamer(o Options, tenant string) *namer {
	dir := filepath.Join(o.Debug.Dir, tenant)
	bytes := o.Debug.Bytes
	if bytes == 0 {
		bytes = debugBytes
	}
	cache := filepath.Join(dir, "cache")
	n := &namer{log: o.Log, library: &debugfile.Library{Dir: dir, Bytes: bytes}, cache: cache, now: o.Now,
		finder: &debugfile.Finder{Dirs: []string{dir}, Servers: o.Debug.Servers, CacheDir: cache, Now: o.Now}}
	n.forget()
	return n
}

// forget has all files be looked for again.
func (n *namer) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.resolver != nil {
		if err := n.resolver.Close(); err != nil {
			n.log.Warn("keep tables of debug files", "error", err)
		}
	}
	n.resolver = symbol.New(symbol.Options{CacheDir: n.cache, DebugDirs: n.finder.Dirs, Debuginfod: n.finder.Servers, Now: n.now})
	n.looked, n.hopeless = map[string]time.Time{}, map[profile.Hash]bool{}
}

// name names what a tenant's windows lack, as far as there are files.
func (n *namer) name(ctx context.Context, s store.Store, tenant string) error {
	unnamed, err := s.Unnamed(ctx, tenant)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var named []profile.Place
	for i := range unnamed {
		p := &unnamed[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p.Location.Kind != profile.KindNative || n.hopeless[p.Hash] || !n.find(ctx, p) {
			continue
		}
		frames := n.resolver.Resolve(p.Location)
		if frames[0].IsUnnamed() {
			n.hopeless[p.Hash] = true
			continue
		}
		named = append(named, profile.Place{Hash: p.Hash, Location: p.Location, Names: frames})
		if len(named) == mostNames {
			if err := s.Name(ctx, tenant, named); err != nil {
				return err
			}
			named = nil
		}
	}
	if len(named) == 0 {
		return nil
	}
	n.log.Info("named code that agents could not", "tenant", tenant, "places", len(named))
	return s.Name(ctx, tenant, named)
}

// find has the resolver know the file of a place, if anybody has it.
func (n *namer) find(ctx context.Context, p *profile.Place) bool {
	id := p.Location.BuildID
	if at, ok := n.looked[id]; ok {
		if at.IsZero() {
			return true
		}
		if n.now().Sub(at) < nameAgain {
			return false
		}
	}
	f, err := n.library.Open(id)
	if errors.Is(err, debugfile.ErrNotFound) {
		f, err = n.finder.Executable(ctx, id)
	}
	if err != nil {
		if !errors.Is(err, debugfile.ErrNotFound) {
			n.log.Warn("find the file of a build-id", "build-id", id, "error", err)
		}
		n.looked[id] = n.now()
		return false
	}
	path := f.Name()
	_ = f.Close() // it is opened again
	shown := id
	if len(p.Names) > 0 && p.Names[0].Mapping != "" {
		shown = p.Names[0].Mapping
	}
	n.resolver.AddFile(id, shown, func() (*os.File, error) { return os.Open(path) })
	n.looked[id] = time.Time{}
	return true
}

// close ends what the namer has open.
func (n *namer) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.resolver.Close(); err != nil {
		n.log.Warn("keep tables of debug files", "error", err)
	}
}

// namers are those of all tenants.
type namers struct {
	options Options

	mu   sync.Mutex // guards of
	of   map[string]*namer
	wake chan struct{} // something was uploaded
}

// namer finds or makes a tenant's.
func (n *namers) namer(tenant string) *namer {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.of[tenant]
	if one == nil {
		one = newNamer(n.options, tenant)
		n.of[tenant] = one
	}
	return one
}

// Name names what agents could not until the context ends, and what was kept
// before as well: names are looked up when windows are read.
func (s *Server) Name(ctx context.Context) {
	if s.options.Debug.Dir == "" {
		return
	}
	ticker := time.NewTicker(nameEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		tenants, err := s.options.Store.Tenants(ctx)
		for _, tenant := range tenants {
			err = errors.Join(err, s.namers.namer(tenant).name(ctx, s.options.Store, tenant))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Error("name code", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-s.namers.wake:
		}
	}
	s.namers.mu.Lock()
	defer s.namers.mu.Unlock()
	for _, one := range s.namers.of {
		one.close()
	}
}
