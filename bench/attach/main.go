// Command attach measures how long it takes from starting "atys record -p" until stacks of a JVM with many classes are complete and named.
//
//	a JVM that loaded -classes classes and calls all of them (testdata)
//	   -> atys record -p, a new process each time, its cache of names empty; samples keep their times
//	   -> the first sample, the first complete one whose Java frames all have names, and what follows it
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/victims"
)

var (
	rounds  = flag.Int("rounds", 7, "recordings of each JVM")
	classes = flag.Int("classes", 20000, "classes that the JVM has loaded")
	length  = flag.Duration("d", 5*time.Second, "length of a recording")
	hz      = flag.Int("F", 99, "frequency")
	only    = flag.String("only", "java", "runtimes, separated by commas: java-17,java-21")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *rounds < 1 || *classes < 1 || *classes > 999999 {
		return errors.New("-rounds is 1 or more, -classes 1 to 999999")
	}
	atys, err := process.Build(ctx, dir)
	if err != nil {
		return err
	}
	chosen, err := runtimes.Chosen(*only)
	if err != nil {
		return err
	}
	const testdata = "bench/attach/testdata/"
	if _, err := harness.Run(ctx, "javac", "--release", "11", "-g", "-d", dir, testdata+"Many.java", testdata+"One000000.java"); err != nil {
		return err
	}
	harness.Header()
	var t harness.Table
	t.Row("JVM", "first sample", "first complete and named", "slowest", "complete and named after it", "floor, goal")
	var failed []error
	for _, r := range chosen {
		if r.Family != "java" {
			return fmt.Errorf("-only %s: the program is for java", r.Name)
		}
		if err := measure(ctx, r, atys, dir, &t); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.Name, err))
		}
	}
	return errors.Join(append(failed, t.Print())...)
}

// attached is what one recording saw, in times since its process was started.
type attached struct {
	sample, named time.Duration
	later, whole  int // samples of the same thread from then on, and how many are complete and named
}

// measure records a JVM again and again and adds its row.
func measure(ctx context.Context, r runtimes.Runtime, atys, dir string, t *harness.Table) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append(r.Command[1:len(r.Command):len(r.Command)], "-cp", dir, "Many", strconv.Itoa(*classes))
	v, err := victims.Start(ctx, r.Command[0], args...)
	if err != nil {
		return err
	}
	defer func() { _, _ = v.Wait() }() // killed: its status says so
	defer cancel()
	var sample, named []float64
	slowest, later, whole := 0.0, 0, 0
	for round := range *rounds {
		a, err := once(ctx, r, v.PID, atys, dir, round)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s, round %d: %.2f s\n", r.Name, round+1, a.named.Seconds())
		sample, named = append(sample, a.sample.Seconds()), append(named, a.named.Seconds())
		slowest = max(slowest, a.named.Seconds())
		later, whole = later+a.later, whole+a.whole
	}
	t.Row(r.Name, harness.Middle(sample, "s"), harness.Middle(named, "s"), fmt.Sprintf("%.2f s", slowest),
		fmt.Sprintf("%.1f%% of %d", 100*float64(whole)/max(float64(later), 1), later), "2 s, 1 s")
	return nil
}

// once records with a process of its own, whose cache of names is empty.
func once(ctx context.Context, r runtimes.Runtime, pid int, atys, dir string, round int) (a attached, err error) {
	path := filepath.Join(dir, "attach.pb.gz")
	c := exec.CommandContext(ctx, atys, "record", "-p", strconv.Itoa(pid), "-F", strconv.Itoa(*hz), "-d", length.String(), "--timed", "-o", path)
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"+strconv.Itoa(round)))
	w, lead, err := harness.RecordTimed(c, path)
	if err != nil {
		return a, err
	}
	thread := 0
	for i, s := range w.Samples { // in the order of their times
		if i == 0 {
			a.sample = lead + s.Time
		}
		good := complete(r, w, s.Stack)
		if good && a.named == 0 {
			a.named, thread = lead+s.Time, w.Thread(s.Thread).TID
		}
		if a.named > 0 && w.Thread(s.Thread).TID == thread { // the others compile, or collect garbage
			a.later++
			if good {
				a.whole++
			}
		}
	}
	if a.named == 0 {
		return a, fmt.Errorf("of %d samples none is complete and named", len(w.Samples))
	}
	return a, nil
}

// complete tells whether a stack is walked to its end and shows Java, all of it named.
func complete(r runtimes.Runtime, w *profile.Window, id profile.StackID) bool {
	if w.Stacks[id].End.Truncated() {
		return false
	}
	java := false
	for _, l := range w.Stacks[id].Locations {
		for _, f := range w.Frames(l) {
			if !r.Own(f) {
				continue
			}
			if strings.HasPrefix(f.Function, "[") {
				return false
			}
			java = true
		}
	}
	return java
}
