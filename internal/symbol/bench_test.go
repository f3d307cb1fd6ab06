package symbol

import (
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/profile"
)

// large are files to measure with; those that are not here are left out.
var large = []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/postgresql/15/bin/postgres", "/usr/bin/node"}

// someLocations gives n places in the code of files, and a resolver that knows them.
func someLocations(b *testing.B, o Options, n int, files ...string) (*Resolver, []profile.Location) {
	b.Helper()
	rng := rand.New(rand.NewSource(1))
	r := New(o)
	b.Cleanup(func() { r.Close() })
	var locations []profile.Location
	for i, file := range files {
		f, err := binfile.Open(file)
		if err != nil {
			b.Skip(err)
		}
		id := f.BuildID()
		r.AddFile(id, file, func() (*os.File, error) { return os.Open(file) })
		segments := f.Executable()
		for len(locations) < n*(i+1)/len(files) {
			s := segments[rng.Intn(len(segments))]
			locations = append(locations, native(id, s.Offset+rng.Uint64()%s.Size))
		}
		f.Close()
	}
	return r, locations
}

// 10,000 places, their tables in memory, not asked for before.
func BenchmarkWarm(b *testing.B) {
	r, locations := someLocations(b, Options{}, 10_000, large...)
	name := func() {
		for _, l := range locations {
			r.Resolve(b.Context(), l)
		}
	}
	name()
	for b.Loop() {
		b.StopTimer()
		for _, m := range r.modules {
			m.ready, m.names = nil, nil
		}
		b.StartTimer()
		name()
	}
}

// The same places asked for again, as every window of a steady program does.
func BenchmarkAgain(b *testing.B) {
	r, locations := someLocations(b, Options{}, 10_000, large...)
	for _, l := range locations {
		r.Resolve(b.Context(), l)
	}
	for b.Loop() {
		for _, l := range locations {
			r.Resolve(b.Context(), l)
		}
	}
}

// The first 1,000 places of a file nothing is known of: CPU time of all threads,
// and what the process's memory grew by at most.
func BenchmarkCold(b *testing.B) { coldBenchmark(b, "") }

// The same with the tables on disk.
func BenchmarkColdFromDisk(b *testing.B) { coldBenchmark(b, b.TempDir()) }

func coldBenchmark(b *testing.B, cacheDir string) {
	for _, file := range append(large, "/usr/local/go/bin/go") {
		b.Run(file[strings.LastIndexByte(file, '/')+1:], func(b *testing.B) {
			o := Options{}
			if cacheDir != "" {
				o.Cache = diskCache(b, cacheDir)
				r, locations := someLocations(b, o, 1000, file)
				for _, l := range locations {
					r.Resolve(b.Context(), l)
				}
				r.Close()
			}
			var cpu time.Duration
			grown := int64(0)
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets VmHWM
				before := statusKB(b, "VmRSS:")
				start := cpuTime()
				b.StartTimer()
				r, locations := someLocations(b, o, 1000, file)
				for _, l := range locations {
					r.Resolve(b.Context(), l)
				}
				b.StopTimer()
				cpu += cpuTime() - start
				grown = max(grown, statusKB(b, "VmHWM:")-before)
				r.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(grown)/1024, "peak-MiB")
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func statusKB(b *testing.B, field string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}
