package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/test/victims"
)

// How long one recording of a cell lasts. The first is short: it shows how many samples
// a second the cell yields.
const (
	firstLength   = 5 * time.Second
	longestLength = 2 * time.Minute
)

// bench holds what cells are measured with.
type bench struct {
	dir      string
	programs map[string]string // paths of the programs to measure, by name
	victim   string            // path of shortlived
}

// result is the measurement of one cell with one program.
type result struct {
	Cell, Program string
	Sum           profile.Sum
	Exact         time.Duration
	Wall          time.Duration
	Stolen        float64 // steal time as a part of all CPU time
	Recordings    int
	Said          string // what the last recording said about missing time
}

// measure measures the cells that have no result yet. It continues after a cell that
// fails.
func (b *bench) measure(ctx context.Context, all []cell, done *resultFile) error {
	var failed []error
	for i, c := range all {
		for _, program := range []string{oldProgram, newProgram} {
			if b.programs[program] == "" || done.has(c.String(), program) {
				continue
			}
			if ctx.Err() != nil {
				return errors.Join(append(failed, ctx.Err())...)
			}
			r, err := b.cell(ctx, c, program)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", c, err))
				continue
			}
			fmt.Fprintf(os.Stderr, "%d of %d: %s, %s: %.3f of %d samples in %s\n", i+1, len(all), c, program, r.balance().Ratio, r.Sum.N, r.Wall.Round(time.Second))
			if err := done.add(r); err != nil {
				return err
			}
		}
	}
	return errors.Join(failed...)
}

// cell records one cell until it has enough samples or the time limit has passed.
func (b *bench) cell(ctx context.Context, c cell, program string) (result, error) {
	r := result{Cell: c.String(), Program: program}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running []*victims.Victim
	defer func() {
		stop() // kills the victims
		for _, v := range running {
			_, _ = v.Wait() // it was killed
		}
	}()
	start := func(path string, args ...string) error {
		v, err := victims.Start(ctx, path, args...)
		if err == nil {
			running = append(running, v)
		}
		return err
	}
	life := strconv.Itoa(int((*limit + time.Hour).Seconds()))
	for range c.instances(*samples, *limit) {
		path, args := b.victim, append([]string{life}, c.task.args...)
		if c.task.args == nil {
			path, args = "python3", []string{filepath.Join("bench", "sampled", "testdata", "requests.py"), life}
		}
		if err := start(path, args...); err != nil {
			return r, err
		}
	}
	targets := len(running)
	for range c.busy {
		if err := start(b.victim, life, "busy", "10", "0"); err != nil {
			return r, err
		}
	}
	began, before := time.Now(), stolen()
	for length := firstLength; r.Sum.N < *samples && time.Since(began) < *limit; length = r.next(*limit - time.Since(began)) {
		if err := b.record(ctx, c, &r, running[:targets], length); err != nil {
			return r, err
		}
		r.Wall = time.Since(began)
	}
	r.Stolen = (stolen() - before).Seconds() / r.Wall.Seconds() / float64(runtime.NumCPU())
	return r, nil
}

// stolen returns the steal time of all CPUs since boot.
func stolen() (all time.Duration) {
	cpus, err := proc.Machine{}.CPUTimes()
	if err != nil {
		return 0
	}
	for _, c := range cpus {
		all += c.Steal
	}
	return all
}

// next returns how long the next recording lasts, from the samples that the previous
// ones yielded.
func (r *result) next(left time.Duration) time.Duration {
	each := r.Wall / time.Duration(max(r.Sum.N, 1))
	return max(min(time.Duration(float64(*samples-r.Sum.N)*1.1)*each, left, longestLength), firstLength)
}

// record makes one recording of the victims and adds it to the result.
func (b *bench) record(ctx context.Context, c cell, r *result, of []*victims.Victim, length time.Duration) error {
	path := filepath.Join(b.dir, "cell.pb.gz")
	args := []string{"record", "-F", fmt.Sprint(c.hz), "-d", length.String(), "-o", path}
	for _, v := range of {
		args = append(args, "-p", strconv.Itoa(v.PID))
	}
	if _, err := harness.Run(ctx, b.programs[r.Program], args...); err != nil {
		return err
	}
	w, err := format.Read(path)
	if err != nil {
		return err
	}
	r.Sum.Add(w.Rows.Total(0))
	r.Exact += w.Exact.CPU
	r.Said = w.Balance().String()
	r.Recordings++
	return nil
}

// balance compares sampled and exact time over all recordings of a cell.
func (r *result) balance() profile.Balance {
	h := profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}, Exact: profile.Exact{CPU: r.Exact}}
	return h.Balance(r.Sum)
}

// resultFile stores results, one line of JSON each.
type resultFile struct {
	file *os.File // nil: results are only in memory
	all  []result
}

func openResults(path string) (*resultFile, error) {
	f := &resultFile{}
	if path == "" {
		return f, nil
	}
	var err error
	if f.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	for d := json.NewDecoder(f.file); d.More(); {
		var r result
		if err := d.Decode(&r); err != nil {
			return nil, errors.Join(fmt.Errorf("read results %q: %w (delete its last line if it was cut off)", path, err), f.file.Close())
		}
		f.all = append(f.all, r)
	}
	_, err = f.file.Seek(0, 2)
	return f, err
}

func (f *resultFile) close() {
	if f.file != nil {
		f.file.Close()
	}
}

func (f *resultFile) add(r result) error {
	f.all = append(f.all, r)
	if f.file == nil {
		return nil
	}
	return json.NewEncoder(f.file).Encode(r)
}

// of returns the result of a cell and program, or nil.
func (f *resultFile) of(cell, program string) *result {
	for i := range f.all {
		if f.all[i].Cell == cell && f.all[i].Program == program {
			return &f.all[i]
		}
	}
	return nil
}

func (f *resultFile) has(cell, program string) bool { return f.of(cell, program) != nil }
