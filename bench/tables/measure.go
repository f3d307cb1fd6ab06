package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/unwind"
)

// bench is the processes, and what was seen of them.
type bench struct {
	files     []*file
	processes []*exec.Cmd
	recorder  *recorder.Recorder
}

// seen counts the samples of a file.
type seen struct {
	samples, complete, wrong int64
	ends                     map[profile.End]int64
}

// start starts a process for each file, and stops it.
func (b *bench) start(ctx context.Context, program string) error {
	for _, f := range b.files {
		c := exec.CommandContext(ctx, program, f.path, f.plan)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		b.processes = append(b.processes, c)
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) || line != "ready\n" {
			return fmt.Errorf("the driver of %s is not ready: %q, %w", f.path, line, err)
		}
		if err := b.signal(len(b.processes)-1, syscall.SIGSTOP); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) signal(i int, s syscall.Signal) error { return b.processes[i].Process.Signal(s) }

func (b *bench) close() {
	if b.recorder != nil {
		b.recorder.Close()
	}
	for _, c := range b.processes {
		c.Process.Kill()
		c.Wait()
	}
}

// rows is the room for rows that is asked for.
func (b *bench) rows() (room uint32, all int) {
	for _, f := range b.files {
		all += f.rows
	}
	// the unwinder rounds up to a power of two: here, down
	room = 1
	for float64(2*room) <= *part*float64(all) {
		room *= 2
	}
	return room, all
}

func (b *bench) measure(ctx context.Context) error {
	room, all := b.rows()
	o := recorder.Options{Event: "cpu-clock", Frequency: *frequency}
	for _, c := range b.processes {
		o.Targets.PIDs = append(o.Targets.PIDs, c.Process.Pid)
	}
	began := time.Now()
	var err error
	if b.recorder, err = recorder.Start(recorder.Setup{Rows: room}, o); err != nil {
		return err
	}
	harness.Header()
	s := b.stats()
	fmt.Printf("%d files with %d rows, room for %d (%.0f%%); all are mapped all the time; ready after %.1f s, %.1f s of CPU time for tables\n",
		len(b.files), all, s.RowsMax, 100*float64(s.RowsMax)/float64(all), time.Since(began).Seconds(), s.TableTime.Seconds())
	if *rounds > 0 {
		if err := b.turns(ctx); err != nil {
			return err
		}
	}
	if *together > 0 && *atOnce > 0 {
		return b.atOnce(ctx)
	}
	return nil
}

func (b *bench) stats() unwind.Stats { return b.recorder.Unwinder().Stats() }

// turns lets one file run after another.
func (b *bench) turns(ctx context.Context) error {
	before := b.stats()
	at, settling := make([]seen, len(b.files)), make([]seen, len(b.files))
	for range *rounds {
		for i := range b.files {
			if err := b.signal(i, syscall.SIGCONT); err != nil {
				return err
			}
			if err := b.watch(ctx, *settle, settling); err != nil {
				return err
			}
			if err := b.watch(ctx, *turn-*settle, at); err != nil {
				return err
			}
			if err := b.signal(i, syscall.SIGSTOP); err != nil {
				return err
			}
			if err := b.watch(ctx, 0, at); err != nil {
				return err
			}
		}
	}
	b.report(fmt.Sprintf("(a) turns of %v, from %v on", *turn, *settle), at, before)
	b.report("    before that", settling, before)
	return nil
}

// atOnce lets many files run at once.
func (b *bench) atOnce(ctx context.Context) error {
	for i := range *atOnce {
		if err := b.signal(i, syscall.SIGCONT); err != nil {
			return err
		}
	}
	before := b.stats()
	at, warming := make([]seen, len(b.files)), make([]seen, len(b.files))
	if err := b.watch(ctx, *warm, warming); err != nil {
		return err
	}
	for end := time.Now().Add(*together - *warm); time.Now().Before(end) && ctx.Err() == nil; {
		if err := b.watch(ctx, 2*time.Second, at); err != nil {
			return err
		}
	}
	b.report(fmt.Sprintf("(b) %d at once, %v", *atOnce, *together), at, before)
	return nil
}

// watch counts what is sampled for a while.
func (b *bench) watch(ctx context.Context, d time.Duration, into []seen) error {
	if err := harness.Sleep(ctx, d); err != nil {
		return err
	}
	w, err := b.recorder.Cut()
	if err != nil {
		return err
	}
	index := map[string]int{}
	for i, f := range b.files {
		index[f.buildID] = i
	}
	for _, row := range w.Rows.All() {
		stack := w.Stacks[row.Stack]
		if len(stack.Locations) == 0 {
			continue
		}
		i, ok := index[w.Locations[stack.Locations[0]].BuildID]
		if !ok {
			continue // in the driver itself, or in the kernel
		}
		into[i].add(b.files[i], w, stack, row.N)
	}
	return nil
}

// add judges a stack whose leaf is in a file.
func (s *seen) add(f *file, w *profile.Window, stack profile.Stack, n int64) {
	if s.ends == nil {
		s.ends = map[profile.End]int64{}
	}
	s.samples += n
	s.ends[stack.End] += n
	var offsets []uint64
	outside := 0
	for depth, id := range stack.Locations {
		l := w.Locations[id]
		if l.BuildID != f.buildID {
			outside++
			continue
		}
		offset := l.Offset
		if depth == 0 {
			offset = f.leafOf(offset)
		}
		offsets = append(offsets, offset)
	}
	key := chainKey(offsets)
	if stack.End == profile.EndComplete {
		s.complete += n
		if !f.chains[key] || outside != 1 {
			s.wrong += n
		}
	} else if !f.prefixes[key] {
		s.wrong += n
	}
}

// leafOf is where the leaf begins that an offset is in.
func (f *file) leafOf(offset uint64) uint64 {
	for _, l := range f.leaves {
		if offset >= l.offset && offset < l.offset+uint64(len(leafLoop)) {
			return l.offset
		}
	}
	return offset
}

func (b *bench) report(what string, at []seen, before unwind.Stats) {
	var all seen
	all.ends = map[profile.End]int64{}
	worst, worstAt := 2.0, ""
	for i, s := range at {
		all.samples += s.samples
		all.complete += s.complete
		all.wrong += s.wrong
		for end, n := range s.ends {
			all.ends[end] += n
		}
		if share := float64(s.complete) / float64(max(s.samples, 1)); s.samples > 0 && share < worst {
			worst, worstAt = share, fmt.Sprintf("%s, %d of %d", b.files[i].path, s.complete, s.samples)
		}
	}
	s := b.stats()
	fmt.Printf("%s: %d samples, %.2f%% complete; worst file %.1f%% (%s); %d wrong\n", what, all.samples, 100*float64(all.complete)/float64(max(all.samples, 1)), 100*worst, worstAt, all.wrong)
	for end, n := range all.ends {
		if end != profile.EndComplete {
			fmt.Printf("      %d %s\n", n, end)
		}
	}
	fmt.Printf("      rows %d of %d; packed tables %.1f MB; since the beginning %d chunks loaded, %d evicted, %d of these needed again within 10 s; %d tables built again, %.2f s of CPU time for building\n",
		s.Rows, s.RowsMax, float64(s.PackedBytes)/1e6, s.Chunks-before.Chunks, s.Evicted-before.Evicted, s.EvictedNeeded-before.EvictedNeeded, s.Rebuilds-before.Rebuilds, (s.TableTime - before.TableTime).Seconds())
}
