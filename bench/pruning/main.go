// Command pruning measures what leaving out threads that hardly matter saves an agent, and by how much shares are off then.
//
//	a JVM of -threads threads (testdata), most of them seldom at work, then one whose threads are all alike
//	   -> atys record -p, once each
//	   -> how unevenly threads share the samples; for each level of pruning the errors of
//	      the largest functions, and the time saved by stage (internal/prune/cost)
//
// Both are of one recording as if it were one window, with and without pruning: what
// differs between two runs of a program is not measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/prune/cost"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/victims"
)

var (
	threads = flag.Int("threads", 1200, "threads of the JVM, beside its own")
	cores   = flag.Float64("cores", 1.2, "cores that they keep busy")
	settle  = flag.Duration("settle", 40*time.Second, "how long the JVM runs before it is recorded")
	length  = flag.Duration("d", 70*time.Second, "length of a recording")
	hz      = flag.Int("F", 999, "frequency")
	rounds  = flag.Int("rounds", 41, "rounds in which times are measured")
	only    = flag.String("only", "java-17", "the JVM, such as java-21")
	keep    = flag.String("keep", "", "folder for the recordings; else they are thrown away")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *threads < 1 || *rounds < 1 {
		return errors.New("-threads and -rounds are 1 or more")
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	chosen, err := runtimes.Chosen(*only)
	if err != nil {
		return err
	}
	if len(chosen) != 1 || chosen[0].Family != "java" {
		return fmt.Errorf("-only %s: name one JVM", *only)
	}
	if _, err := harness.Run(ctx, "javac", "--release", "11", "-g", "-d", dir, "bench/pruning/testdata/Crowd.java"); err != nil {
		return err
	}
	harness.Header()
	for _, how := range []string{"skewed", "even"} {
		path, err := record(ctx, chosen[0], atys, dir, how)
		if err == nil {
			err = report(ctx, path, how)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
	}
	return nil
}

// record records a JVM and gives the file.
func record(ctx context.Context, r runtimes.Runtime, atys, dir, how string) (path string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command := append(r.Command[:len(r.Command):len(r.Command)], "-Xss256k", "-cp", dir, "Crowd", strconv.Itoa(*threads), strconv.FormatFloat(*cores, 'g', -1, 64), how)
	v, err := victims.Start(ctx, command[0], command[1:]...)
	if err != nil {
		return "", err
	}
	defer func() { _, _ = v.Wait() }() // killed: its status says so
	defer cancel()
	select {
	case <-time.After(*settle):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if *keep != "" {
		dir = *keep
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("-keep: %w", err)
		}
	}
	path = filepath.Join(dir, how+".pb.gz")
	_, err = harness.Run(ctx, atys, "record", "-p", strconv.Itoa(v.PID), "-F", strconv.Itoa(*hz), "-d", length.String(), "-o", path)
	return path, err
}

// report prints what a recording shows.
func report(ctx context.Context, path, how string) error {
	w, err := format.Read(path)
	if err != nil {
		return err
	}
	r, err := cost.Of(ctx, w, *rounds, false)
	if err != nil {
		return err
	}
	part := func(percent float64) string {
		return render.Share(prune.Part(int64(r.Skew.Making(percent)), int64(len(r.Skew.Threads))))
	}
	m := r.Measured
	fmt.Printf("%s: %s samples of %d threads, %d more used CPU time unsampled; 90%% are of %s of them, 99%% of %s; %d functions, %d stacks, %d rows\n", how,
		render.Count(r.Skew.N), r.Skew.Sampled, len(r.Skew.Threads)-r.Skew.Sampled, part(90), part(99), r.Functions, len(w.Stacks), w.Rows.Len())
	fmt.Printf("unpruned: naming %s of %d places (%d of files that are not here), encoding %s, shipping %s, %s\n\n", ms(r.Unpruned.Took[cost.Naming]), m.Nameable, m.Unnamed,
		ms(r.Unpruned.Took[cost.Encoding]), ms(r.Unpruned.Took[cost.Shipping]), render.Value(float64(r.Unpruned.Bytes), "bytes"))
	var t harness.Table
	head := []string{"level", "threads kept", "at most off"}
	for _, n := range cost.Tops() {
		head = append(head, fmt.Sprintf("MAPE top %d", n))
	}
	t.Row(append(head, "to prune", "naming saved", "encoding saved", "shipping saved", "time saved", "bytes saved")...)
	for _, l := range r.Levels {
		row := []string{prune.Level(l.Percent), strconv.Itoa(l.Threads), harness.Percent(l.MostOff)}
		for _, mape := range l.MAPE {
			row = append(row, harness.Percent(mape))
		}
		t.Row(append(row, ms(l.Took[cost.Pruning]), harness.Percent(l.Saved[cost.Naming].Value), harness.Percent(l.Saved[cost.Encoding].Value), harness.Percent(l.Saved[cost.Shipping].Value),
			harness.Percents(l.SavedAll), harness.Percent(l.SavedBytes))...)
	}
	if err := t.Print(); err != nil {
		return err
	}
	fmt.Println()
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.3g ms", 1000*d.Seconds()) }
