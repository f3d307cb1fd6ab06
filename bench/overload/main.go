// Command overload has a machine compile without pause beside a database and a web server, and watches how atys up keeps within its budget, and how it comes back.
//
//	pgbench, a loaded node server, go build of this tree with an empty cache in a loop (work.go), or -load
//	   -> atys up --max-cpu: its metrics, every ten seconds (watch.go): CPU time by cause, the rate, decisions, memory, late windows
//	   -> the load ends -> until the requested rate is back and nothing is limited
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
)

var (
	length  = flag.Duration("d", 5*time.Minute, "how long the machine is overloaded")
	calm    = flag.Duration("calm", 3*time.Minute, "how long to wait at most for the rate to come back, after that")
	maxCPU  = flag.String("max-cpu", "4%", "budget of atys")
	listen  = flag.String("listen", "127.0.0.1:18942", "where atys answers")
	program = flag.String("atys", "", "atys that is measured; else it is built from this tree")
	against = flag.String("against", "", "another atys, that runs beside it")
	every   = flag.Duration("every", 10*time.Second, "how often to ask it")
	load    = flag.String("load", "", "a shell command that is the load instead, over and over, such as 'make test-busy'; it has to succeed")
	ready   = flag.Duration("ready", time.Minute, "how long atys runs before the load begins")
)

// longestTurn is how long the last run of -load may go on after -d.
const longestTurn = time.Hour

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) (err error) {
	atys := *program
	if atys == "" {
		if atys, err = process.Build(ctx, dir); err != nil {
			return err
		}
	}
	harness.Header()
	up, err := startUp(atys, dir, "data", *listen)
	if err != nil {
		return err
	}
	w := &watch{address: "http://" + *listen, began: time.Now(), process: up.PID()}
	if *against != "" {
		other, startErr := startUp(*against, dir, "other", "")
		if startErr != nil {
			return errors.Join(startErr, up.End(time.Minute))
		}
		defer func() { err = errors.Join(err, other.End(time.Minute)) }()
		w.against = other.PID()
	}
	err = w.follow(ctx, dir)
	if ended := up.End(time.Minute); err == nil {
		err = ended
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, up.Log())
	}
	if w.calm == 0 { // the load never ended
		return err
	}
	return errors.Join(err, w.report())
}

// startUp starts an atys up with data and a cache of its own, both empty: this is its
// first start on the machine. Without an address it listens on any port and is not
// waited for.
func startUp(program, dir, name, address string) (*process.Process, error) {
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	args := []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache"), program, "up", "--data", filepath.Join(dir, "data"), "--listen", cmp.Or(address, "127.0.0.1:0"), "--max-cpu", *maxCPU}
	if address == "" {
		return process.Start("env", args...)
	}
	return process.StartServer(address, "env", args...)
}

// follow watches atys through overload and calm.
func (w *watch) follow(ctx context.Context, dir string) (err error) {
	if err := w.until(ctx, *ready, nil); err != nil {
		return err
	}
	busy, cancel := context.WithCancel(ctx)
	work, err := startWork(busy, dir)
	defer func() {
		cancel()
		if failed := work.wait(); err == nil {
			err = failed
		}
	}()
	if err != nil {
		return err
	}
	w.loaded = len(w.seen)
	over := func(sight) bool { return work.over() }
	if err := w.until(ctx, *length, over); err != nil {
		return err
	}
	work.stop()
	if err := w.until(ctx, longestTurn, over); err != nil {
		return err
	}
	failed := work.wait()
	w.turns = work.turns.Load()
	w.calm = len(w.seen)
	if failed != nil {
		return failed
	}
	return w.until(ctx, *calm, func(s sight) bool { return s.back() })
}
