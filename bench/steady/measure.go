package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/unwind/cfi"
)

// steady is one long recording, measured from outside.
type steady struct {
	startup, finish time.Duration // CPU: of the first ten seconds, and from the last measurement to the end
	user            float64       // cores, in between
	bpf             float64       // cores
	interrupts      float64       // a second
	first, last     footprint.Footprint
	peak            int64 // largest RSS, mapped maps included
	output          []byte
}

// recorder is the command that records everything; its cache of names is empty
// at first.
func recorder(ctx context.Context, atys, dir string, more ...string) *exec.Cmd {
	args := append([]string{"-n", fmt.Sprint(*nice), atys, "record", "-a", "-F", fmt.Sprint(*hz)}, more...)
	c := exec.CommandContext(ctx, "nice", args...)
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	return c
}

// settled is from when on a recording is called steady.
const settled = 10 * time.Second

// measureSteady records the machine with a process of its own.
func measureSteady(ctx context.Context, atys, dir string) (s steady, err error) {
	var out bytes.Buffer
	c := recorder(ctx, atys, dir, "-d", length.String(), "-o", filepath.Join(dir, "steady.pb.gz"))
	c.Stderr = &out
	if err := c.Start(); err != nil {
		return s, err
	}
	time.Sleep(settled)
	began := time.Now()
	if s.first, err = footprint.Of(c.Process.Pid); err != nil {
		return s, fmt.Errorf("%w: %s", err, out.Bytes())
	}
	time.Sleep(*length - settled - time.Second)
	if s.last, err = footprint.Of(c.Process.Pid); err != nil {
		return s, err
	}
	seconds := time.Since(began).Seconds()
	if err := c.Wait(); err != nil {
		return s, fmt.Errorf("atys record: %w: %s", err, out.Bytes())
	}
	s.startup = s.first.CPU
	s.finish = c.ProcessState.UserTime() + c.ProcessState.SystemTime() - s.last.CPU
	s.user = (s.last.CPU - s.first.CPU).Seconds() / seconds
	s.bpf = (s.last.RunTime - s.first.RunTime).Seconds() / seconds
	s.interrupts = float64(s.last.SampleRuns-s.first.SampleRuns) / seconds
	if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.peak = usage.Maxrss << 10
	}
	s.output = out.Bytes()
	return s, nil
}

// sighting is when a process was first seen, after the recorder's start.
type sighting struct {
	pid             int
	name            string
	share           float64       // of a core
	sample          time.Duration // first sample of any kind
	complete        time.Duration // first complete stack; 0: none
	samples, wholes int
}

// measureStart records the machine for some seconds and keeps the times of samples.
func measureStart(ctx context.Context, atys, dir string) ([]sighting, error) {
	path := filepath.Join(dir, "start.pb.gz")
	c := recorder(ctx, atys, dir, "-d", startLength.String(), "--timed", "-o", path)
	w, lead, err := harness.RecordTimed(c, path)
	if err != nil {
		return nil, err
	}
	seen := map[int]*sighting{}
	for _, t := range w.Threads {
		s := seen[t.PID]
		if s == nil {
			s = &sighting{pid: t.PID, name: render.Printable(t.Process)}
			seen[t.PID] = s
		}
		s.share += t.Exact.CPU.Seconds() / w.Duration.Seconds()
	}
	for _, sample := range w.Samples { // in the order of their times
		s := seen[w.Thread(sample.Thread).PID]
		if s == nil {
			continue
		}
		if s.samples++; s.samples == 1 {
			s.sample = lead + sample.Time
		}
		if w.Stacks[sample.Stack].End.Truncated() {
			continue
		}
		if s.wholes++; s.wholes == 1 {
			s.complete = lead + sample.Time
		}
	}
	const busy = 0.05
	maps.DeleteFunc(seen, func(_ int, s *sighting) bool { return s.share < busy })
	out := make([]sighting, 0, len(seen))
	for _, s := range seen {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b sighting) int { return cmp.Compare(b.share, a.share) })
	return out, nil
}

// buildTable builds a file's unwinding table and gives its rows and the CPU time.
func buildTable(path string) (rows int, took time.Duration, err error) {
	before, err := footprint.CPU(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, err
	}
	f, err := binfile.New(file, info.Size())
	if err != nil {
		return 0, 0, fmt.Errorf("read %q: %w", path, err)
	}
	table, err := cfi.Build(f.ELF)
	if err != nil {
		return 0, 0, fmt.Errorf("read the unwind information of %q: %w", path, err)
	}
	after, err := footprint.CPU(os.Getpid())
	return len(table.Rows), after - before, err
}
