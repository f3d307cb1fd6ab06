package truth

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/test/victims"
)

// TestSampledTimeIsExactTime has tasks that live or run for a moment only, beside
// programs that are busy all the time: what their samples weigh is what the kernel
// says they used. With 20,000 samples chance is worth 1%.
func TestSampledTimeIsExactTime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const hz, enough = 2999, 20_000
	path, err := victims.Build(t.TempDir(), "shortlived", victims.Options{})
	if err != nil {
		t.Fatal(err)
	}
	start := func(t *testing.T, args ...string) int {
		v, err := victims.Start(t.Context(), path, append([]string{"3600"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = v.Wait() }) // it is killed with the test's context
		return v.PID
	}
	for range 2 {
		start(t, "busy")
	}
	for _, c := range []struct {
		name  string
		args  []string
		least float64
	}{
		{"threads of 0.5 ms", []string{"threads", "0.5", "0.5"}, 0.90}, // a switch is as long as a hundredth of one
		{"threads of 5 ms", []string{"threads", "5", "5"}, 0.95},
		{"processes of 5 ms", []string{"processes", "5", "0"}, 0.95},
		{"64 threads that run 0.25 ms each 20", []string{"pool", "0.25", "20", "64"}, 0.90},
	} {
		t.Run(c.name, func(t *testing.T) {
			pid := start(t, c.args...)
			r, err := recorder.Start(recorder.Setup{}, recorder.Options{Targets: recorder.Targets{PIDs: []int{pid}}, Event: "cpu-clock", Frequency: hz, Threads: true})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			stolen, passed := stolenTime(t)
			var whole *profile.Window
			for deadline := time.Now().Add(5 * time.Minute); whole == nil || whole.N() < enough; {
				w, err := r.Record(t.Context(), 500*time.Millisecond, nil)
				if err != nil {
					t.Fatal(err)
				}
				if whole == nil {
					whole = w
				} else if whole, err = profile.Merge(whole, w); err != nil {
					t.Fatal(err)
				}
				if whole.Exact.CPU > 4*enough*time.Second/hz || time.Now().After(deadline) {
					break // with so little of it sampled it has failed
				}
			}
			stolenNow, passedNow := stolenTime(t)
			most := 1.05 + (stolenNow-stolen)/(passedNow-passed) // timers run on while a hypervisor has the CPU, exact time does not
			b := whole.Balance()
			why, _ := r.Sampler().Placement()
			t.Logf("%.3f (%.3f to %.3f) of %v with %d samples; %s", b.Ratio, b.Low, b.High, b.Exact, whole.N(), why)
			if b.Ratio < c.least || b.Ratio > most {
				t.Errorf("%.3f of the exact CPU time was sampled, want %.2f to %.3f", b.Ratio, c.least, most)
			}
		})
	}
}

// stolenTime gives the time that a hypervisor has taken of all CPUs, and all their
// time, in the kernel's ticks.
func stolenTime(t *testing.T) (stolen, all float64) {
	t.Helper()
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	const stealField, guestField = 8, 9 // guest time is part of user time
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(field, 64)
		if i == 0 || i >= guestField {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if all += ticks; i == stealField {
			stolen = ticks
		}
	}
	return stolen, all
}
