package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
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

// recordExternal records with another profiler until the duration is over, the
// targets have ended, or a signal comes.
func recordExternal(ctx context.Context, f recordFlags, k external.Kernel, targets recorder.Targets, child *child) (*profile.Window, error) {
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	early := k != external.Perf // those want a program that has begun
	if child != nil && early {
		child.run(cancel)
	}
	s, err := recorder.StartExternal(ended, external.Options{Kernel: k, PIDs: targets.PIDs, Frequency: f.frequency, Threads: true, AllowAttach: f.allowAttach},
		f.percent, child != nil && early)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if child != nil && !early {
		child.run(cancel)
	} else if child == nil {
		go untilGone(ended, targets.PIDs, cancel)
	}
	return s.Record(ended, f.duration, progress(f.duration))
}
