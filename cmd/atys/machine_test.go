package main

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/internal/spec"
)

// TestWithoutBPF asks for recordings where BPF cannot be used.
func TestWithoutBPF(t *testing.T) {
	s := &station{cause: errors.New("it is forbidden"), log: slog.New(slog.DiscardHandler)}
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	for _, test := range []struct{ kernel, event, want string }{
		{spec.KernelBPF, "cpu-clock", "it is forbidden"},
		{spec.KernelAuto, "page-faults", "it is forbidden"},
		{spec.KernelAuto, "cpu-clock", "it is forbidden\nno other kernel is installed"},
		{spec.KernelPerf, "cpu-clock", "kernel perf: not installed"},
		{spec.KernelAsync, "cpu-clock", "allowAttach"},
	} {
		r, err := s.record(agent.Wanted{Kernel: test.kernel, Measurement: spec.Measure(test.event, 19), Frequency: 19, Window: time.Second})
		if r != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %s: %v, %v; want %q", test.kernel, test.event, r, err, test.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv("PATH", path)
	if _, err := external.NewCrew(external.CrewOptions{}); err != nil {
		t.Skip("no other profiler is installed")
	}
	r, err := s.record(agent.Wanted{Kernel: spec.KernelAuto, Measurement: spec.Measure("cpu-clock", 19), Frequency: 19, Window: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	crew, ok := r.(sampler.Delayed)
	if !ok {
		t.Fatalf("%T", r)
	}
	if _, err := r.Cut(sampler.Edge{}); err != nil {
		t.Error(err)
	}
	if trouble := crew.Trouble(); trouble.Failed || !strings.Contains(trouble.Message, "it is forbidden") {
		t.Errorf("%+v", trouble)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
