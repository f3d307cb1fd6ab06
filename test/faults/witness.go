package faults

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// Witness keeps what lies in a spool, though its agent ships and removes it: so it is
// known what was cut without asking the agent or its server.
type Witness struct {
	dir  string
	stop context.CancelFunc
	done chan struct{}
	err  error // once it is done
}

// Watch has a witness look at a spool, which need not be there yet, and keep in a
// directory what it sees, until it is ended.
func Watch(spool, dir string) *Witness {
	ctx, stop := context.WithCancel(context.Background())
	w := &Witness{dir: dir, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for ctx.Err() == nil && w.err == nil {
			w.err = w.look(spool)
			time.Sleep(10 * time.Millisecond) // what is cut is shipped half a second later, or sooner
		}
	}()
	return w
}

// look copies what is new. What is shipped meanwhile nobody sees.
func (w *Witness) look(spool string) error {
	bundles, err := filepath.Glob(filepath.Join(spool, "*.bundle"))
	if err != nil {
		return err
	}
	for _, name := range bundles {
		to := filepath.Join(w.dir, filepath.Base(name))
		if exists(to) {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Windows ends it, and gives those that lay there, as far as they did for a moment.
func (w *Witness) Windows() (map[Cut]int64, error) {
	if err := w.End(); err != nil {
		return nil, err
	}
	return windowsIn(w.dir)
}

// End has it look no more.
func (w *Witness) End() error {
	w.stop()
	<-w.done
	return w.err
}
