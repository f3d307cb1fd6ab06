package proc

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestParseIdle(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"cpu  10 20 30 400 5 6 7 8 9 0\ncpu0 1 2 3 4\n": 4050 * time.Millisecond,
		"cpu  0 0 0 0 0":                      0,
		"cpu  18446744073709551615 0 0 1 1 0": 20 * time.Millisecond,
	} {
		if got, err := ParseIdle([]byte(text)); err != nil || got != want {
			t.Errorf("%q: idle for %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "cpu", "cpu0 1 2 3 4 5\n", "cpu  1 2 3\n", "cpu  1 2 3 x 5\n", "cpu  1 2 3 18446744073709551615 1 0\n"} {
		if got, err := ParseIdle([]byte(text)); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// Whatever the file holds, the time read is one that can be added to.
func FuzzParseIdle(f *testing.F) {
	f.Add([]byte("cpu  10 20 30 400 5 6 7 8 9 0\ncpu0 1 2 3 4\n"))
	f.Add([]byte("cpu  1 2 3 4611686018427387904 0 0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		idle, err := ParseIdle(data)
		if idle < 0 || err != nil && idle != 0 {
			t.Errorf("%q: %v, %v", data, idle, err)
		}
	})
}

// Idle time grows, and not faster than all CPUs together can be idle.
func TestIdleTime(t *testing.T) {
	before, err := Machine{}.IdleTime()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	time.Sleep(100 * time.Millisecond)
	after, err := Machine{}.IdleTime()
	most := time.Since(began)*time.Duration(runtime.NumCPU()) + 100*time.Millisecond // it is kept in ticks
	if err != nil || after < before || after-before > most {
		t.Errorf("idle for %v in %v, %v", after-before, time.Since(began), err)
	}
}

func TestMaxSampleRate(t *testing.T) {
	root := t.TempDir()
	if _, err := (Machine{Proc: root}).MaxSampleRate(); err == nil {
		t.Error("a missing file has a rate")
	}
	file := filepath.Join(root, "sys/kernel/perf_event_max_sample_rate")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("32000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if hz, err := (Machine{Proc: root}).MaxSampleRate(); err != nil || hz != 32000 {
		t.Errorf("got %d, %v", hz, err)
	}
}
