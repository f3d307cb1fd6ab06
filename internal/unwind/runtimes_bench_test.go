package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/lang"
)

// BenchmarkRead reads the runtime of a process whose file is new to us, and of
// the next one that maps it.
func BenchmarkRead(b *testing.B) {
	classes := b.TempDir()
	source := filepath.Join(classes, "Sleep.java")
	program := "class Sleep { public static void main(String[] a) throws Exception { Thread.sleep(600_000); } }"
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command("javac", "--release", "11", source).CombinedOutput(); err != nil {
		b.Logf("Java is left out, it needs javac: %v\n%s", err, out)
	}
	for _, command := range [][]string{
		{"node", "-e", "setInterval(() => {}, 1000)"},
		{"python3", "-c", "import time; time.sleep(600)"},
		{"java", "-XX:+UseSerialGC", "-Xmx64m", "-cp", classes, "Sleep"},
		{"ruby", "-e", "sleep 600"},
		{"php", "-r", "sleep(600);"},
		{"perl", "-e", "sleep 600"},
		{"erl", "-noshell"},
	} {
		b.Run(command[0], func(b *testing.B) {
			path, err := exec.LookPath(command[0])
			if err != nil {
				b.Skipf("no %s here", command[0])
			}
			cmd := exec.Command(path, command[1:]...)
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() {
				cmd.Process.Kill()
				cmd.Wait()
			}()
			m, read := started(b, cmd.Process.Pid)
			b.Run("first", func(b *testing.B) {
				benchmarkRead(b, read, func() lang.Mapped { m.Notes = &lang.Notes{}; return m })
			})
			b.Run("next", func(b *testing.B) {
				benchmarkRead(b, read, func() lang.Mapped { return m })
			})
		})
	}
}

// benchmarkRead also tells the CPU time, which other processes disturb less.
func benchmarkRead(b *testing.B, read func(lang.Mapped) (lang.Walked, error), next func() lang.Mapped) {
	before := cpuTime(b)
	for b.Loop() {
		if _, err := read(next()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// started waits until the runtime of a process can be read.
func started(b *testing.B, pid int) (m lang.Mapped, read func(lang.Mapped) (lang.Walked, error)) {
	b.Helper()
	var err error
	for range 1000 {
		time.Sleep(10 * time.Millisecond)
		var found bool
		if m, read, found = runtimeOf(b, pid); !found {
			continue
		}
		if _, err = read(m); err == nil {
			return m, read
		}
	}
	b.Fatalf("it was never read: %v", err)
	return m, read
}

// runtimeOf finds the runtime that a process maps, if it does so yet.
func runtimeOf(b *testing.B, pid int) (m lang.Mapped, read func(lang.Mapped) (lang.Walked, error), found bool) {
	b.Helper()
	mappings, err := Proc{}.Mappings(pid)
	if err != nil {
		b.Fatal(err)
	}
	for _, mapped := range mappings {
		handle, err := Proc{}.Open(pid, mapped)
		if err != nil {
			continue
		}
		e := &executable{handle: handle, path: mapped.Path}
		f, err := readELF(handle)
		if err == nil {
			address, ok := f.Address(mapped.Offset)
			for _, r := range languages {
				if ok && r.holds(f) {
					b.Cleanup(e.close)
					return lang.Mapped{PID: pid, Path: e.path, Bias: mapped.Start - address, Open: e.source().Open, Notes: &lang.Notes{}}, r.read, true
				}
			}
		}
		e.close()
	}
	return lang.Mapped{}, nil, false
}
