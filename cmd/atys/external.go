package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/external"
)

// The values of --kernel that are no external kernel's name.
const (
	kernelAuto = "auto"
	kernelBPF  = "bpf"
)

// kernelFlags choose who takes the samples.
type kernelFlags struct {
	kernel      string
	allowAttach bool
}

func kernelNames() []string {
	names := []string{kernelAuto, kernelBPF}
	for _, k := range external.Kernels() {
		names = append(names, string(k))
	}
	return names
}

func (k *kernelFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.kernel, "kernel", kernelAuto, "what takes the samples: "+strings.Join(kernelNames(), ", ")+"; auto is bpf where it can be used, else the best one installed")
	f.BoolVar(&k.allowAttach, "allow-attach", false, "you agree that the process is touched: async-profiler loads a library into it, and .NET is asked for the names of its methods")
	_ = c.RegisterFlagCompletionFunc("kernel", cobra.FixedCompletions(kernelNames(), cobra.ShellCompDirectiveNoFileComp))
}

// external tells whether another profiler was asked for by name.
func (k *kernelFlags) external() bool { return k.kernel != kernelAuto && k.kernel != kernelBPF }

// bpfOnly are the flags that no other kernel follows.
var bpfOnly = []string{"all", "cgroup", "event", "count", "timed", "unwind-memory", "budget"}

func (k *kernelFlags) check(c *cobra.Command) error {
	known := false
	for _, name := range kernelNames() {
		known = known || name == k.kernel
	}
	if !known {
		return fmt.Errorf("--kernel %q: want %s", k.kernel, strings.Join(kernelNames(), ", "))
	}
	if !k.external() {
		return nil
	}
	for _, name := range bpfOnly {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s goes with --kernel bpf only: %s samples the CPU time of processes (-p, --name, or a command)", name, k.kernel)
		}
	}
	return nil
}

// fallback chooses another kernel where BPF cannot be used, and says so; the
// cause comes back where there is none, or the user wants no other.
func (f *recordFlags) fallback(c *cobra.Command, targets recorder.Targets, command []string, cause error) (external.Kernel, error) {
	if f.kernel != kernelAuto || len(targets.PIDs) == 0 {
		return "", cause
	}
	for _, name := range bpfOnly {
		if c.Flags().Changed(name) {
			return "", cause
		}
	}
	k, why, err := external.Choose(proc.FS{}, targets.PIDs, command, f.allowAttach)
	if err != nil {
		return "", fmt.Errorf("%w\n%w", cause, err)
	}
	fmt.Fprintf(os.Stderr, "atys: BPF cannot be used (%v); recording with %s: %s\n", cause, k, why)
	return k, nil
}

// externalWindow is how long one run of another profiler is kept going: its
// memory and files grow with it. perf's files grow fastest.
func externalWindow(k external.Kernel) time.Duration {
	if k == external.Perf {
		return 10 * time.Second
	}
	return time.Minute
}

// recordExternal records with another profiler until the duration is over, the
// targets have ended, or a signal comes.
func recordExternal(ctx context.Context, f recordFlags, k external.Kernel, targets recorder.Targets, child *child) (*profile.Window, error) {
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	early := k != external.Perf // those want a program that has begun
	if child != nil && early {
		child.run(cancel)
	}
	s, err := startExternal(ended, f, k, targets.PIDs, child != nil && early)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if child != nil && !early {
		child.run(cancel)
	} else if child == nil {
		go untilGone(ended, targets.PIDs, cancel)
	}
	w, err := gather(ended, s, f.duration, externalWindow(k))
	if w != nil && f.percent > 0 {
		prune.Window(w, f.percent, nil)
	}
	return w, err
}

// externalStart is how long a command may take to become a program that its
// profiler knows.
const externalStart = 10 * time.Second

// startExternal starts the sampler. Signals end the start, but not the tool:
// the recording is to be written.
func startExternal(ctx context.Context, f recordFlags, k external.Kernel, pids []int, patient bool) (*external.Sampler, error) {
	toolCtx, kill := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, kill)
	deadline := time.Now().Add(externalStart)
	for {
		s, err := external.New(toolCtx, external.Options{Kernel: k, PIDs: pids, Frequency: f.frequency,
			Threads: true, AllowAttach: f.allowAttach, Longest: externalWindow(k)})
		if err == nil {
			stop()
			return s, nil
		}
		if patient && ctx.Err() != nil {
			kill()
			return nil, fmt.Errorf("the command ended before %s had found it to be a program it records", k)
		}
		if !patient || errors.Is(err, external.ErrConsent) || errors.Is(err, external.ErrNotInstalled) || time.Now().After(deadline) {
			kill()
			return nil, err
		}
		select {
		case <-ctx.Done():
			kill()
			return nil, fmt.Errorf("the command ended before %s could record it: %w", k, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// gather cuts windows and merges them.
func gather(ctx context.Context, s *external.Sampler, duration, every time.Duration) (whole *profile.Window, err error) {
	var end <-chan time.Time
	if duration > 0 {
		timer := time.NewTimer(duration)
		defer timer.Stop()
		end = timer.C
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	report := progress(duration)
	for last := false; !last; {
		cut := s.Finish
		select {
		case <-ctx.Done():
			last = true
		case <-end:
			last = true
		case <-s.Done():
			last = true
		case <-ticker.C:
			cut = s.Cut
		}
		w, err := cut()
		if err != nil {
			return whole, err
		}
		if report != nil {
			report(w)
		}
		if whole == nil {
			whole = w
		} else if whole, err = profile.Merge(whole, w); err != nil {
			return whole, err
		}
	}
	return whole, nil
}
