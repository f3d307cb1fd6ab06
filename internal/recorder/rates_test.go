package recorder

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// TestRates samples two processes at rates that are ten times apart, in one recording:
// what they used is told as well of one as of the other.
func TestRates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	loop := func() int {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		return cmd.Process.Pid
	}
	fast, slow := loop(), loop()
	m, err := Open(Setup{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := m.Start(Options{Event: "cpu-clock", Frequency: 999, Threads: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	i := Instrument{r}
	i.Aim([]int{fast, slow}, nil)
	rates := map[int]float64{fast: 500, slow: 50}
	if err := i.SetRates(rates); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Cut(); err != nil { // its edge brings targets and rates in
		t.Fatal(err)
	}
	n, value, exact := map[int]float64{}, map[int]float64{}, map[int]float64{}
	for began := time.Now(); n[slow] < 100 && time.Since(began) < 2*time.Minute; {
		time.Sleep(500 * time.Millisecond)
		w, err := r.Cut()
		if err != nil {
			t.Fatal(err)
		}
		add(w, n, value, exact)
	}
	for pid, hz := range rates {
		if got := n[pid] / exact[pid]; got < 0.7*hz || got > 1.4*hz {
			t.Errorf("%.0f samples in %.1f s, wanted %g Hz", n[pid], exact[pid], hz)
		}
		if got := value[pid] / exact[pid]; got < 0.7 || got > 1.4 {
			t.Errorf("at %g Hz: samples weigh %.2f of the time that was used", hz, got)
		}
	}
}

// add sums by process what was sampled, and what was used.
func add(w *profile.Window, n, value, exact map[int]float64) {
	for _, row := range w.Rows.All() {
		pid := w.Thread(row.Thread).PID
		n[pid] += float64(row.N)
		value[pid] += float64(row.Values[0]) / 1e9
	}
	for _, thread := range w.Threads {
		exact[thread.PID] += thread.Exact.CPU.Seconds()
	}
}
