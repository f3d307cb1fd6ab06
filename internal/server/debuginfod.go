package server

import (
	"context"
	"errors"
	"sync"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/binfile/debugfile"
)

// want has the servers be asked for what a build-id's code is named with, unless
// they were lately. A file that was sent may lack what its debug file has.
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

// ask has what is wanted be asked for, one after the other, beside whatever else
// is done; got is called once files came.
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

// next takes what is to be asked for next.
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

// bring gets the executable of a build-id and its debug file, as far as they are
// not here, and tells whether there is something to look at again.
func (n *namer) bring(ctx context.Context, id string) bool {
	sent, err := n.library.Open(id)
	f := sent
	if errors.Is(err, debugfile.ErrNotFound) {
		f, err = n.finder.Executable(ctx, id)
	}
	more := false
	if err == nil {
		path := f.Name()
		_ = f.Close() // it is opened again
		more, err = n.bringDebug(ctx, id, path)
		more = more || sent == nil
	}
	if err != nil && !errors.Is(err, debugfile.ErrNotFound) && ctx.Err() == nil {
		n.log.Warn("ask for the files of a build-id", "build-id", id, "error", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.brought[id] = true
	n.stale = n.stale || more
	return more
}

// bringDebug gets the debug file of an executable, and what that shares with others.
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
