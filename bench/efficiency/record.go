package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/test/victims"
)

// ours is the kernel that is not an external profiler.
const ours = "bpf"

// running says how a workload is run, and by what it is sampled.
type running struct {
	name, kernel string
	load         load
	wrap         func(command []string) []string // nil: the workload runs as it is
}

func (r *running) flags(f *flag.FlagSet) {
	f.StringVar(&r.name, "workload", "java", "java, python or native")
	f.StringVar(&r.kernel, "kernel", ours, "bpf; async-profiler or py-spy, which .ci/peers installs; pyroscope for python, but not for cost")
	f.IntVar(&r.load.busy, "busy", 2, "threads that are at work at any time; python has one")
	f.IntVar(&r.load.threads, "threads", 1200, "threads of java, which take turns")
	f.StringVar(&r.load.runtime, "jvm", "java-17", "the JVM, such as java-21")
	f.StringVar(&r.load.python, "python", "/usr/bin/python3", "the Python, which has PyTorch")
	f.BoolVar(&r.load.onednn, "onednn", false, "have python convolve by oneDNN, whose code is made at run time and cannot be unwound: our walks end in it")
}

func (r *running) check() (workload, error) {
	switch {
	case r.load.busy < 1 || r.load.threads < r.load.busy:
		return workload{}, errors.New("-busy is 1 or more, -threads not less")
	case r.kernel == pyroscope && r.name != "python":
		return workload{}, errors.New("-kernel pyroscope is for -workload python")
	}
	return findWorkload(r.name)
}

// record makes a recording.
func record(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("record", flag.ExitOnError)
	var r running
	r.flags(f)
	p := plan{}
	f.Uint64Var(&p.seed, "seed", 1, "of the schedule")
	f.IntVar(&p.changes, "changes", 10, "of the phase, beside those at the run's ends")
	f.DurationVar(&p.least, "least", time.Minute, "a phase lasts at least")
	f.DurationVar(&p.most, "most", 5*time.Minute, "a phase lasts at most")
	f.DurationVar(&p.ramp, "ramp", time.Minute, "how long the load rises at first, and falls at last")
	f.DurationVar(&r.load.window, "window", 10*time.Second, "length of a window, at most 16s")
	hz := f.Float64("F", 10000, "frequency")
	dir := f.String("o", "", "folder for the recording, which must not exist")
	_ = f.Parse(args) // it exits where it fails
	w, err := r.check()
	if err == nil {
		err = p.check()
	}
	switch {
	case err != nil:
		return err
	case r.load.window < time.Second || r.load.window > longestCut:
		return fmt.Errorf("-window is 1s to %v", longestCut)
	case *dir == "":
		return errors.New("say with -o where the recording is to be")
	}
	if err := os.Mkdir(*dir, 0o755); err != nil {
		return err
	}
	r.load.steps = p.draw()
	fmt.Fprintf(os.Stderr, "%s at %v Hz for %v, %d changes\n", r.name, *hz, r.load.steps.length().Round(time.Second), len(r.load.steps)-1)
	h := head{Workload: r.name, Kernel: r.kernel, Seed: p.seed, Hertz: *hz, Window: r.load.window, Schedule: r.load.steps.String(), Machine: harness.Machine()}
	return r.record(ctx, w, h, *dir)
}

// record runs the workload to its end, and keeps what is seen of it.
func (r *running) record(ctx context.Context, w workload, h head, dir string) (err error) {
	var see eye
	if r.kernel == pyroscope {
		if see, r.wrap, err = takeIn(h.Hertz, h.Window); err != nil {
			return err
		}
	}
	v, stop, err := r.start(ctx, w)
	if err != nil {
		return err
	}
	defer stop()
	if see == nil {
		if see, err = look(ctx, r.kernel, w, v.PID, h.Hertz); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, see.Close()) }()
	p, err := newPacker(dir, h, w.hot, time.Now())
	if err != nil {
		return err
	}
	for !v.Ended() {
		seen, err := see.until(ctx, nextEdge(time.Now(), h.Window))
		if v.Ended() {
			break // in the last window, which is not whole
		}
		if err == nil {
			err = p.add(seen)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d samples, %s\n", seen.Start.Format(time.TimeOnly), seen.N(), losses(seen))
	}
	log, err := v.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return p.finish(dir, log)
}

// nextEdge is when a window of the clock ends.
func nextEdge(now time.Time, window time.Duration) time.Time {
	return time.Unix(0, (now.UnixNano()/int64(window)+1)*int64(window))
}

func losses(w *profile.Window) string {
	var said []string
	for _, l := range w.Losses {
		if l.Reason.OfSamples() {
			said = append(said, fmt.Sprintf("%d %s", l.N, l.Reason))
		}
	}
	if said == nil {
		return "none lost"
	}
	return strings.Join(said, ", ")
}

// start starts the workload; stop ends it, if it has not, and cleans up.
func (r *running) start(ctx context.Context, w workload) (v *victims.Victim, stop func(), err error) {
	dir, err := os.MkdirTemp("", "atys-efficiency")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop = func() {
		cancel()
		if v != nil {
			_, _ = v.Wait() // it may have been killed: its status says so
		}
		_ = os.RemoveAll(dir) // of the system's temporary files
	}
	command, err := w.command(ctx, dir, r.load)
	if err == nil && r.wrap != nil {
		command = r.wrap(command)
	}
	if err == nil {
		v, err = victims.Start(ctx, command[0], command[1:]...)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return v, stop, nil
}

// eye sees what a process does.
type eye interface {
	// until gives what was seen up to an instant.
	until(ctx context.Context, end time.Time) (*profile.Window, error)
	Close() error
}

// look begins to sample a process.
func look(ctx context.Context, kernel string, w workload, pid int, hz float64) (eye, error) {
	if kernel != ours {
		return lookWith(ctx, external.Kernel(kernel), pid, hz)
	}
	r, err := recorder.Start(setup(), recorder.Options{Targets: recorder.Targets{PIDs: []int{pid}}, Event: "cpu-clock",
		Frequency: hz, Threads: true, Timed: true, Placement: cpu.PlaceCPUs})
	if err != nil {
		return nil, err
	}
	if w.managed {
		runtime := runtimes.Runtime{Name: "the workload", Language: w.language}
		if err := runtime.Await(r.Unwinder(), pid); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return seer{r}, nil
}

// seer is our own kernel.
type seer struct{ *recorder.Recorder }

func (s seer) until(ctx context.Context, end time.Time) (*profile.Window, error) {
	return s.Record(ctx, max(time.Until(end), time.Millisecond), nil)
}

// tool is an external profiler.
type tool struct{ *external.Sampler }

func lookWith(ctx context.Context, kernel external.Kernel, pid int, hz float64) (eye, error) {
	if err := findPeers(); err != nil {
		return nil, err
	}
	s, err := external.New(ctx, external.Options{Kernel: kernel, PIDs: []int{pid}, Frequency: hz, AllowAttach: true, Longest: time.Minute})
	if err != nil {
		return nil, fmt.Errorf("%w (.ci/peers installs py-spy and async-profiler)", err)
	}
	return tool{s}, nil
}

// findPeers has programs be found that .ci/peers has installed.
func findPeers() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	return os.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Join(cache, "atys", "peers", "bin"))
}

func (t tool) until(ctx context.Context, end time.Time) (*profile.Window, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Until(end)):
		return t.Cut()
	}
}
