// Command storm records a machine on which hundreds of short processes start every second: is anything left behind, and are those that live long enough seen whole?
//
//	recording of everything (99 Hz, then 999 Hz) -> quiet, storm, quiet, storm, quiet
//	   -> what we hold in each quiet: descriptors, maps, memory, what the unwinder tracks
//	   -> each sample of a process the storm logged (samples.go): complete and named, or why not
//
// What the first storm leaves (tables of files seen, the heap's size) is no
// leak; what the second adds would be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/test/truth"
	"atys.dev/atys/test/victims"
)

var (
	length = flag.Duration("d", time.Minute, "length of a storm")
	rate   = flag.Float64("rate", 500, "processes a second")
	storms = flag.Int("storms", 2, "storms in each recording")
	quiet  = flag.Duration("quiet", 5*time.Second, "pause before and after each storm")
	rates  = flag.String("F", "99,999", "frequencies, a recording each")
	lived  = flag.Duration("lived", 50*time.Millisecond, "how long a process must live to count")
	top    = flag.Int("top", 5, "how many reasons to print for what is not complete or not named")
)

func main() { harness.Main(harness.CountingBPF(run)) }

func run(ctx context.Context, dir string) error {
	path, err := victims.Build(dir, "forkstorm", victims.Options{})
	if err != nil {
		return err
	}
	harness.Header()
	for field := range strings.SplitSeq(*rates, ",") {
		hz, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return fmt.Errorf("-F: %w", err)
		}
		r := &recording{hz: hz, path: path}
		if err := r.record(ctx); err != nil {
			return err
		}
		if err := r.report(); err != nil {
			return err
		}
	}
	return nil
}

// recording is one recording of the machine through some storms.
type recording struct {
	hz    float64
	path  string
	epoch time.Time

	before, after int // descriptors without a recording
	states        []state
	storms        []storm
	samples       []sample
	verdict       verdict
	losses        profile.Head // only its losses
}

// state is what we hold in a quiet moment.
type state struct {
	held    footprint.Footprint
	tracked unwind.Stats
	running int // processes on the machine
}

// storm is what one of them cost us.
type storm struct {
	wall, cpu, bpf time.Duration
	born           int
}

func (r *recording) record(ctx context.Context) error {
	var err error
	if r.before, err = descriptors(); err != nil {
		return err
	}
	if r.epoch, err = truth.Epoch(); err != nil {
		return err
	}
	rec, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{All: true}, Event: "cpu-clock",
		Frequency: r.hz, Threads: true, Timed: true})
	if err != nil {
		return err
	}
	if err := r.rest(ctx, rec); err == nil {
		for range *storms {
			if err = r.storm(ctx, rec); err != nil {
				break
			}
		}
	}
	if closeErr := rec.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	r.after, err = descriptors()
	return err
}

// rest waits until what ended is forgotten, and measures.
func (r *recording) rest(ctx context.Context, rec *recorder.Recorder) error {
	if err := r.follow(ctx, rec, time.After(*quiet)); err != nil {
		return err
	}
	debug.FreeOSMemory()
	held, err := footprint.Of(os.Getpid())
	if err != nil {
		return err
	}
	running, err := filepath.Glob("/proc/[0-9]*")
	r.states = append(r.states, state{held, rec.Unwinder().Stats(), len(running)})
	return err
}

// storm runs one, and judges the samples of its processes.
func (r *recording) storm(ctx context.Context, rec *recorder.Recorder) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, began := r.states[len(r.states)-1].held, time.Now()
	v, err := victims.Start(ctx, r.path, fmt.Sprint(length.Seconds()), fmt.Sprint(*rate))
	if err != nil {
		return err
	}
	ended := make(chan time.Time)
	var text []byte
	var failed error
	go func() {
		text, failed = v.Wait()
		close(ended)
	}()
	if err := r.follow(ctx, rec, ended); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	after, err := footprint.Of(os.Getpid())
	if err != nil {
		return err
	}
	born, err := readStorm(text)
	if err != nil {
		return err
	}
	r.storms = append(r.storms, storm{time.Since(began), after.CPU - before.CPU, after.RunTime - before.RunTime, len(born)})
	r.judge(born)
	text, born = nil, nil
	return r.rest(ctx, rec)
}

// cutEvery is the recorder's own habit.
const cutEvery = 2 * time.Second

// follow takes windows until the channel is ready.
func (r *recording) follow(ctx context.Context, rec *recorder.Recorder, end <-chan time.Time) error {
	ticker := time.NewTicker(cutEvery)
	defer ticker.Stop()
	for last := false; !last; {
		select {
		case <-end:
			last = true
		case <-ticker.C:
		}
		w, err := rec.CutNamed(ctx)
		if err != nil {
			return err
		}
		r.take(w)
	}
	return nil
}

func descriptors() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err
}
