package proc

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

// A process has exited when it is a zombie, and one that was collected is gone.
func TestAwaitExit(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read wait")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := []int{cmd.Process.Pid}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitExit(cancelled, pids); !errors.Is(err, context.Canceled) {
		t.Errorf("a process that runs, and a wait that was cancelled: %v", err)
	}
	input.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := AwaitExit(ctx, pids); err != nil {
		t.Errorf("a zombie: %v", err)
	}
	_ = cmd.Wait() // its status does not matter here
	if err := AwaitExit(ctx, pids); err != nil {
		t.Errorf("one that was collected: %v", err)
	}
}
