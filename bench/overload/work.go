package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"atys.dev/atys/bench/background"
	"atys.dev/atys/test/process"
)

// work is what overloads the machine.
type work struct {
	programs *background.Programs // nil with -load
	stopping context.CancelFunc
	turns    atomic.Int64  // builds, or runs of -load, that succeeded
	ended    chan struct{} // closed when no turn runs any more
	err      error         // of the turn that failed, once ended
}

// startWork starts all of it. It ends with ctx, or when a turn fails.
func startWork(ctx context.Context, dir string) (*work, error) {
	w := &work{ended: make(chan struct{})}
	more, stopping := context.WithCancel(ctx)
	w.stopping = stopping
	if *load != "" {
		go w.repeat(more, func(int) error { return runLoad(ctx, *load) }) // the last run ends by itself
		return w, nil
	}
	var err error
	if w.programs, err = background.New(dir); err == nil {
		err = errors.Join(w.programs.Database(more), w.programs.Node(more))
	}
	if err != nil {
		w.err = err
		close(w.ended)
		return w, err
	}
	go w.repeat(more, func(n int) error { return build(more, filepath.Join(dir, fmt.Sprintf("cache%d", n))) })
	return w, nil
}

// repeat takes turns until the context ends or a turn fails.
func (w *work) repeat(ctx context.Context, turn func(n int) error) {
	defer close(w.ended)
	for n := 0; ctx.Err() == nil; n++ {
		switch err := turn(n); {
		case err == nil:
			w.turns.Add(1)
		case ctx.Err() == nil:
			w.err = err
			return
		}
	}
}

// over reports whether no turn runs any more.
func (w *work) over() bool { return process.Closed(w.ended) }

// stop starts no further turn. A build is broken off; a run of -load goes on to its end.
func (w *work) stop() { w.stopping() }

// wait returns the error of the turn that failed.
func (w *work) wait() error {
	<-w.ended
	if w.programs != nil {
		w.programs.Wait()
	}
	return w.err
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

// runLoad runs a shell command. What it prints is shown: it may take long.
func runLoad(ctx context.Context, command string) error {
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	if err := c.Run(); err != nil {
		return fmt.Errorf("-load %q: %w", command, err)
	}
	return nil
}
