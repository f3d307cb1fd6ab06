// Command soak records a machine on which nothing stays as it was, for a long time: does what we hold grow, and does anything break?
//
//	a JVM that loads and forgets classes, 200 scripts a second, Python children killed while they run (work.go)
//	   -> a recording of everything, whose windows are dropped as they come
//	   -> what we hold, every -every: descriptors, maps, memory, what the unwinder tracks
//	   -> at the end: programs that ended otherwise than they should
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/unwind"
)

var (
	length = flag.Duration("d", 10*time.Minute, "length of the recording")
	every  = flag.Duration("every", 30*time.Second, "between measurements")
	rate   = flag.Float64("rate", 200, "scripts a second")
	hz     = flag.Float64("F", 999, "frequency")
	java   = flag.String("java", "java-21", "the JVM, of those that are here")
	python = flag.String("python", "python-3.12", "the Python")
	top    = flag.Int("top", 8, "how many kinds of loss to print")
	heap   = flag.String("heap", "", "file for a profile of what our heap holds at the end of the work")
)

func main() { harness.Main(harness.CountingBPF(run)) }

func run(ctx context.Context, dir string) error {
	if *every < time.Second || *length < 2**every {
		return errors.New("-every is 1s or more, -d twice as long or longer")
	}
	s := &soak{}
	var err error
	if s.before, err = descriptors(); err != nil {
		return err
	}
	if err := s.run(ctx, dir); err != nil {
		return err
	}
	if s.after, err = descriptors(); err != nil {
		return err
	}
	return s.report()
}

// soak is what was measured.
type soak struct {
	work   *work
	before int // descriptors of this process without recording and work
	after  int
	states []state
	ended  ended
	head   profile.Head // only its losses
}

// state is what we hold at one moment.
type state struct {
	at      time.Duration
	held    footprint.Footprint
	tracked unwind.Stats
	samples int64 // since the last one
	unnamed int64 // of these, in a function without a name
	quiet   bool  // the work has ended
}

// cutEvery is the recorder's own habit.
const cutEvery = time.Second

// run starts the work and records it.
func (s *soak) run(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.work, err = startWork(ctx, dir); err != nil {
		return err
	}
	defer s.work.wait()
	defer cancel()
	r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{All: true}, Event: "cpu-clock", Frequency: *hz, Threads: true})
	if err != nil {
		return err
	}
	return errors.Join(s.follow(ctx, r), r.Close())
}

// follow takes windows until the end, and measures in between; last when the
// work has ended.
func (s *soak) follow(ctx context.Context, r *recorder.Recorder) error {
	cut, measure := time.NewTicker(cutEvery), time.NewTicker(*every)
	defer cut.Stop()
	defer measure.Stop()
	end := time.After(*length)
	began := time.Now()
	var now state
	for {
		select {
		case <-cut.C:
			if err := s.take(ctx, r, &now); err != nil {
				return err
			}
		case <-measure.C:
			if err := s.measure(r, &now, time.Since(began)); err != nil {
				return err
			}
		case <-end:
			err := keepHeap()
			if err != nil {
				return err
			}
			if s.ended, err = s.work.end(); err != nil {
				return err
			}
			time.Sleep(settle)
			now.quiet = true
			if err := s.take(ctx, r, &now); err != nil {
				return err
			}
			return s.measure(r, &now, time.Since(began))
		}
	}
}

// keepHeap writes what is held.
func keepHeap() error {
	if *heap == "" {
		return nil
	}
	f, err := os.Create(*heap)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// settle is how long we need to forget what ended.
const settle = 5 * time.Second

func (s *soak) take(ctx context.Context, r *recorder.Recorder, now *state) error {
	w, err := r.CutNamed(ctx)
	if err != nil {
		return err
	}
	now.samples += w.N()
	now.unnamed += w.LossOf(profile.LossUnsymbolized).N
	for _, l := range w.Losses {
		s.head.AddLoss(l)
	}
	return nil
}

func (s *soak) measure(r *recorder.Recorder, now *state, at time.Duration) error {
	debug.FreeOSMemory() // what garbage happens to lie there is no leak
	var err error
	now.at, now.tracked = at, r.Unwinder().Stats()
	if now.held, err = footprint.Of(os.Getpid()); err != nil {
		return err
	}
	s.states = append(s.states, *now)
	fmt.Fprintf(os.Stderr, "%v: %d descriptors, %.1f MB\n", at.Round(time.Second), now.held.FDs, mb(now.held.RSS-now.held.RSSMaps))
	*now = state{}
	return nil
}

func descriptors() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err
}
