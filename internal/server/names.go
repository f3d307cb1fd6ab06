package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/binfile/debugfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/symbol"
	"atys.dev/atys/internal/wire/atysv1"
)

// Debug configures where the server finds names of code that agents could not name.
type Debug struct {
	Dir     string   // where uploaded files are kept; "": none are accepted
	Bytes   int64    // quota of uploaded files of a tenant; 0: 20 GB
	Servers []string // URLs of debuginfod
}

const (
	debugBytes = 20 << 30
	// nameEvery is how often new code is named, nameAgain how long servers are not asked
	// again for a file that none had.
	nameEvery = 30 * time.Second
	nameAgain = 30 * time.Minute
	mostNames = 2000 // stored in one batch
)

// namer names the unnamed code of one tenant, with files of that tenant alone: a
// build-id proves nothing about the rest of a file. It uses the files that are here;
// others are downloaded in the background (debuginfod.go), so that naming never waits
// for another machine.
type namer struct {
	log     *slog.Logger
	library *debugfile.Library
	finder  *debugfile.Finder
	cache   string
	now     func() time.Time

	naming   sync.Mutex // guards all below, up to mu
	resolver *symbol.Resolver
	tables   *diskcache.Cache // the resolver's
	found    map[string]bool  // files that the resolver knows, by build-id
	hopeless map[profile.Hash]bool

	mu      sync.Mutex           // guards all below; it is held briefly
	stale   bool                 // there are new files
	asking  bool                 // a goroutine asks servers
	wanted  []string             // build-ids that it is to ask for
	asked   map[string]time.Time // when each was last wanted, by build-id
	brought map[string]bool      // build-ids that servers have answered for
}

func newNamer(o Options, tenant string) *namer {
	dir := filepath.Join(o.Debug.Dir, tenant)
	bytes := o.Debug.Bytes
	if bytes == 0 {
		bytes = debugBytes
	}
	library := &debugfile.Library{Dir: dir, Bytes: bytes}
	if o.Debug.Dir != "" {
		if err := library.Sweep(); err != nil { // they only take up space
			o.Log.Error("remove interrupted uploads", "tenant", tenant, "error", err)
		}
	}
	cache := filepath.Join(dir, "cache")
	return &namer{log: o.Log, library: library, cache: cache, now: o.Now, stale: true,
		asked: map[string]time.Time{}, brought: map[string]bool{},
		finder: &debugfile.Finder{Dirs: []string{dir}, Servers: o.Debug.Servers, CacheDir: cache, Now: o.Now}}
}

// forget makes the namer look for all files again.
func (n *namer) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stale = true
}

// begin makes a new resolver, which knows no files, if there are new ones. naming is
// held.
func (n *namer) begin() {
	n.mu.Lock()
	stale := n.stale
	n.stale = false
	n.mu.Unlock()
	if stale {
		n.end()
		n.tables = diskcache.OpenIfPossible(n.cache, diskcache.Options{Log: n.log})
		n.resolver = symbol.New(symbol.Options{Cache: n.tables, DebugDirs: n.finder.Dirs, Now: n.now})
		n.found, n.hopeless = map[string]bool{}, map[profile.Hash]bool{}
	}
}

// end closes the resolver. naming is held.
func (n *namer) end() {
	if n.resolver == nil {
		return
	}
	if err := errors.Join(n.resolver.Close(), n.tables.Close()); err != nil {
		n.log.Warn("keep tables of debug files", "error", err)
	}
}

// name names the unnamed code of a tenant, as far as there are files.
func (n *namer) name(ctx context.Context, s store.Store, tenant string) error {
	unnamed, err := s.Unnamed(ctx, tenant)
	if err != nil {
		return err
	}
	n.naming.Lock()
	defer n.naming.Unlock()
	n.begin()
	var named []profile.Place
	for i := range unnamed {
		p := &unnamed[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p.Location.Kind != profile.KindNative || n.hopeless[p.Hash] || !n.find(p) {
			continue
		}
		frames := n.resolver.Resolve(ctx, p.Location)
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

// find adds the file of a place to the resolver, if it is here. naming is held.
func (n *namer) find(p *profile.Place) bool {
	id := p.Location.BuildID
	file := binfile.Unqualified(id)
	n.want(file)
	if found, looked := n.found[id]; looked {
		return found
	}
	f, err := n.executable(file)
	if err != nil {
		if !errors.Is(err, debugfile.ErrNotFound) {
			n.log.Warn("find the file of a build-id", "build-id", id, "error", err)
		}
		n.found[id] = false
		return false
	}
	path := f.Name()
	_ = f.Close() // it is reopened
	shown := id
	if len(p.Names) > 0 && p.Names[0].Mapping != "" {
		shown = p.Names[0].Mapping
	}
	n.resolver.AddFile(id, shown, func() (*os.File, error) { return os.Open(path) })
	n.found[id] = true
	return true
}

// executable opens the executable of a build-id: the uploaded one, or the downloaded
// one, once servers have been asked for its debug file as well: named code is not
// resolved again, so it would never get lines otherwise.
func (n *namer) executable(id string) (*os.File, error) {
	f, err := n.library.Open(id)
	if !errors.Is(err, debugfile.ErrNotFound) {
		return f, err
	}
	n.mu.Lock()
	brought := n.brought[id]
	n.mu.Unlock()
	if !brought {
		return nil, debugfile.ErrNotFound
	}
	return n.finder.Downloaded(id)
}

// close closes the namer.
func (n *namer) close() {
	n.naming.Lock()
	defer n.naming.Unlock()
	n.end()
}

// namers are the namers of all tenants.
type namers struct {
	options Options
	tenant  func(context.Context) string // of a request
	wake    chan struct{}                // there are more files

	mu sync.Mutex // guards of
	of map[string]*namer
}

// look makes Run start a round now.
func (n *namers) look() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// namer returns the namer of a tenant.
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

// Run names code that agents could not name until the context ends, also in windows that
// are stored already: names are looked up when windows are read.
func (n *namers) Run(ctx context.Context) {
	if n.options.Debug.Dir == "" {
		return
	}
	var askers sync.WaitGroup
	defer askers.Wait()
	ticker := time.NewTicker(nameEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		tenants, err := n.options.Store.Tenants(ctx)
		for _, tenant := range tenants {
			one := n.namer(tenant)
			err = errors.Join(err, one.name(ctx, n.options.Store, tenant))
			one.ask(ctx, &askers, n.look)
		}
		if err != nil && ctx.Err() == nil {
			n.options.Log.Error("name code", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-n.wake:
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.of {
		one.close()
	}
}

// quota returns the quota of a tenant's debug files; none if they cannot be listed.
func (n *namers) quota(tenant string) []*atysv1.Quota {
	if n.options.Debug.Dir == "" {
		return nil
	}
	library := n.namer(tenant).library
	files, err := library.List()
	if err != nil {
		n.options.Log.Error("list debug files", "error", err)
		return nil
	}
	q := &atysv1.Quota{What: "bytes of debug files", Most: uint64(library.Bytes)}
	for _, file := range files {
		q.Used += uint64(file.Bytes)
	}
	return []*atysv1.Quota{q}
}
