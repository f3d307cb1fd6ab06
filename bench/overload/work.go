package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"atys.dev/atys/bench/background"
)

// work is what overloads the machine.
type work struct {
	programs *background.Programs
	loop     sync.WaitGroup
	builds   atomic.Int64 // that have ended
}

// startWork starts all of it; it ends with ctx, and wait waits for that.
func startWork(ctx context.Context, dir string) (w *work, err error) {
	w = &work{}
	if w.programs, err = background.New(dir); err != nil {
		return w, err
	}
	for _, start := range []func(context.Context) error{w.programs.Database, w.programs.Node} {
		if err := start(ctx); err != nil {
			return w, err
		}
	}
	failed := make(chan error, 1)
	w.loop.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := build(ctx, filepath.Join(dir, fmt.Sprintf("cache%d", n))); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
				failed <- err
				return
			}
			w.builds.Add(1)
		}
	})
	select {
	case err := <-failed:
		return w, err
	default:
		return w, nil
	}
}

// build builds this tree with an empty cache.
func build(ctx context.Context, cache string) error {
	defer os.RemoveAll(cache)
	c := exec.CommandContext(ctx, "go", "build", "-o", cache+".out/", "./cmd/...", "./bench/...")
	defer os.RemoveAll(cache + ".out")
	c.Env = append(os.Environ(), "GOCACHE="+cache, "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build (run this from the top of the tree): %w: %s", err, out)
	}
	return nil
}

func (w *work) wait() {
	w.programs.Wait()
	w.loop.Wait()
}
