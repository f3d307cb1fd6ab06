// Command restart starts "atys up" with nothing on disk, then again with what the first one left: how much CPU time does the second save?
//
//	Node, a JVM, Chromium, Go tools and short-lived gcc, those that are here (work.go)
//	   -> each round: an empty cache and store; "atys up" for -d, ended; "atys up" for -d again
//	   -> CPU time of the process, and the ratio of the second to the first over the rounds
//
// What interrupts cost is not in it: the kernel charges that to whoever is
// interrupted, and it is the same both times.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/test/process"
)

var (
	length = flag.Duration("d", 30*time.Second, "how long each start runs")
	rounds = flag.Int("rounds", 5, "pairs of starts that count; one more before them warms the kernel's page cache")
	listen = flag.String("listen", "127.0.0.1:14391", "address for its page")
	extra  = flag.String("args", "", "more flags of \"atys up\", such as --max-cpu=0")
	given  = flag.String("atys", "", "the program, if not one built from this tree")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) (err error) {
	if *length < time.Second || *rounds < 1 {
		return errors.New("-d is 1s or more, -rounds 1 or more")
	}
	program := *given
	if program == "" {
		if program, err = process.Build(ctx, dir); err != nil {
			return err
		}
	}
	w, err := startWork(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	var first, again []float64
	var kept int64
	for round := range *rounds + 1 {
		a, b, size, err := pair(ctx, program, filepath.Join(dir, "round"+strconv.Itoa(round)))
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d: first %.2f s, again %.2f s, %.1f MB kept\n", round, a, b, float64(size)/1e6)
		if round > 0 {
			first, again, kept = append(first, a), append(again, b), size
		}
	}
	harness.Header()
	t := harness.Table{}
	t.Row("start", "CPU time of the first "+length.String())
	t.Row("with nothing on disk", harness.Middle(first, "s"))
	t.Row("again", harness.Middle(again, "s"))
	t.Row("again / first", harness.Ratio(again, first))
	if err := t.Print(); err != nil {
		return err
	}
	fmt.Printf("\nBeside %s; the cache had %.0f MB.\n", strings.Join(w.names, ", "), float64(kept)/1e6)
	return nil
}

// pair starts with nothing, then again.
func pair(ctx context.Context, program, dir string) (first, again float64, kept int64, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, 0, 0, err
	}
	defer os.RemoveAll(dir)
	if first, err = start(ctx, program, dir); err != nil {
		return 0, 0, 0, err
	}
	if again, err = start(ctx, program, dir); err != nil {
		return 0, 0, 0, err
	}
	err = filepath.WalkDir(filepath.Join(dir, "cache"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				kept += info.Size()
			}
		}
		return err
	})
	return first, again, kept, err
}

// start runs "atys up" for a while, and gives its CPU time.
func start(ctx context.Context, program, dir string) (seconds float64, err error) {
	if err := os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")); err != nil {
		return 0, err
	}
	args := append([]string{"up", "--data", filepath.Join(dir, "data"), "--listen", *listen}, strings.Fields(*extra)...)
	p, err := process.Start(program, args...)
	if err != nil {
		return 0, err
	}
	sleepErr := harness.Sleep(ctx, *length)
	used, err := footprint.CPU(p.PID())
	if err = errors.Join(sleepErr, err, p.End(time.Minute)); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, p.Log())
	}
	return used.Seconds(), nil
}
