package recorder

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// TestAim has a target take long to be read: nobody waits for it, and its stacks are
// whole from its first sample on.
func TestAim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	loop := exec.Command("sh", "-c", "while :; do :; done")
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	defer loop.Wait()
	defer loop.Process.Kill()
	ready := make(chan struct{}, 1)
	m, err := Open(Setup{Ready: func() { ready <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := m.Start(Options{Event: "cpu-clock", Frequency: 499, Threads: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	i := Instrument{r}
	read := make(chan struct{})
	r.readying.track = func(pid int) { r.machine.read(pid); <-read }
	if i.Aim([]int{loop.Process.Pid}, nil) {
		t.Error("it is fresh while it is being read")
	}
	cut := func() *profile.Window {
		time.Sleep(200 * time.Millisecond)
		w, err := r.Cut()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for range 2 {
		if w := cut(); w.N() != 0 || w.Exact.CPU != 0 {
			t.Errorf("%d samples, %v used while it is being read", w.N(), w.Exact.CPU)
		}
	}
	close(read)
	<-ready
	if !i.Aim(nil, nil) {
		t.Error("it is not told that it is ready")
	}
	cut()
	var n, lost int64
	for i := 0; i < 100 && n < 20; i++ {
		w := cut()
		n, lost = n+w.N(), lost+w.LossOf(profile.LossTruncated).N+w.LossOf(profile.LossStarting).N
	}
	if n == 0 || lost > 0 {
		t.Errorf("%d of %d stacks are cut", lost, n)
	}
}
