package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"atys.dev/atys/internal/sampler/offcpu"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/spec"
)

// TestOffCPU samples a program that sleeps, with an agent, a server and its store: the
// answer names what it waits in, and its CPU time is there beside it.
func TestOffCPU(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if !offcpu.Supported() {
		t.Skip("this kernel has no tracepoint sched_exit_tp")
	}
	if offcpu.Kind != spec.KindOffCPU {
		t.Fatalf("the kind of windows is %q, that of profiles %q", offcpu.Kind, spec.KindOffCPU)
	}
	sleepy := filepath.Join(t.TempDir(), "atys-sleepy") // of which there is no other
	if err := exec.CommandContext(t.Context(), "cp", "/bin/sleep", sleepy).Run(); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), sleepy, "1000").Start(); err != nil {
		t.Fatal(err)
	}
	f := serverFlags{retention: upkeep.DefaultRetention, data: t.TempDir(), listenFlags: listenFlags{listen: freeAddress(t)}}
	t.Setenv(serverVariable, "http://"+f.listen)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- up(ctx, f, budgetFlags{offCPU: true}, logger(false)) }()
	becomes(t, "nanosleep", "query", "top", `{service="atys-sleepy"}`, "--kind", spec.KindOffCPU)
	becomes(t, "nanosleep", "query", "top", `{service="atys-sleepy"}`, "--kind", "waits")
	becomes(t, "SELF", "query", "top", "--kind", spec.KindCPU)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
