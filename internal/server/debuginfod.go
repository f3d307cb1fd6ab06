package server

import (
	"context"
	"errors"
	"sync"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/binfile/debugfile"
)

// want asks servers for the files that name the code of a build-id, unless they were
// asked recently. An uploaded file may lack what its debug file has.
func (n *namer) want(id string) {
	if len(n.finder.Servers) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.asked[id]; ok && n.now().Sub(at) < nameAgain {
		return
	}
	n.asked[id] = n.now()
	n.wanted = append(n.wanted, id)
}

// ask downloads what is wanted in a goroutine of askers, one file after another, and
// calls got for each that arrives.
func (n *namer) ask(ctx context.Context, askers *sync.WaitGroup, got func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking || len(n.wanted) == 0 {
		return
	}
	n.asking = true
	askers.Go(func() {
		for id, ok := n.next(); ok; id, ok = n.next() {
			if ctx.Err() == nil && n.bring(ctx, id) {
				got()
			}
		}
	})
}

// next takes the next build-id to ask for.
func (n *namer) next() (id string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wanted) == 0 {
		n.asking = false
		return "", false
	}
	id, n.wanted = n.wanted[0], n.wanted[1:]
	return id, true
}

// bring downloads the executable of a build-id and its debug file, unless they are here,
// and reports whether there are new files.
func (n *namer) bring(ctx context.Context, id string) bool {
	sent, err := n.library.Open(id)
	f := sent
	if errors.Is(err, debugfile.ErrNotFound) {
		f, err = n.finder.Executable(ctx, id)
	}
	more := false
	if err == nil {
		path := f.Name()
		_ = f.Close() // it is reopened
		more, err = n.bringDebug(ctx, id, path)
		more = more || sent == nil
	}
	if err != nil && !errors.Is(err, debugfile.ErrNotFound) && ctx.Err() == nil {
		n.log.Warn("download the files of a build-id", "build-id", id, "error", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.brought[id] = true
	n.stale = n.stale || more
	return more
}

// bringDebug downloads the debug file of an executable, and the file that it shares
// with others.
func (n *namer) bringDebug(ctx context.Context, id, path string) (more bool, err error) {
	b, err := binfile.Open(path)
	if err != nil {
		return false, err
	}
	defer b.Close()
	if b.Section(".debug_info") != nil {
		return false, nil
	}
	had := n.finder.Local(id) != ""
	debug, err := n.finder.Find(ctx, b, "")
	if err != nil {
		return false, err
	}
	defer debug.Close()
	if _, _, ok := debug.AltLink(); !ok {
		return !had, nil
	}
	shared, err := n.finder.FindAlt(ctx, debug, "")
	if err != nil {
		return !had, err
	}
	return !had, shared.Close()
}
