package proc

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseMaps(t *testing.T) {
	const x = "560b5de8d000-560b5de92000 r-xp 00002000 fe:00 247026                     "
	base := Mapping{Start: 0x560b5de8d000, End: 0x560b5de92000, Offset: 0x2000, Major: 0xfe, Inode: 247026, Perm: PermRead | PermExec}
	with := func(b Backing, deleted bool, path string) Mapping {
		m := base
		m.Backing, m.Deleted, m.Path = b, deleted, path
		return m
	}
	tests := []struct {
		name, line string
		want       Mapping
	}{
		{"file", x + "/usr/bin/cat", with(BackingFile, false, "/usr/bin/cat")},
		{"deleted", x + "/usr/bin/cat (deleted)", with(BackingFile, true, "/usr/bin/cat")},
		{"spaces", x + "/tmp/a b  c (x) ", with(BackingFile, false, "/tmp/a b  c (x) ")},
		{"newline", x + `/tmp/a\012b`, with(BackingFile, false, "/tmp/a\nb")},
		{"backslash", x + `/tmp/a\b\040`, with(BackingFile, false, `/tmp/a\b\040`)},
		{"memfd", x + "/memfd:jit (deleted)", with(BackingMemfd, true, "/memfd:jit")},
		{"shared memory", x + "/SYSV00001234 (deleted)", with(BackingShared, true, "/SYSV00001234")},
		{"shared anonymous", x + "/dev/zero (deleted)", with(BackingShared, true, "/dev/zero")},
		{"a device", x + "/dev/zero", with(BackingFile, false, "/dev/zero")},
		{"anonymous", x, with(BackingAnonymous, false, "")},
		{"heap", x + "[heap]", with(BackingAnonymous, false, "[heap]")},
		{"named", x + "[anon: my pool]", with(BackingAnonymous, false, "[anon: my pool]")},
		{"vdso", x + "[vdso]", with(BackingVDSO, false, "[vdso]")},
		{"vvar", x + "[vvar_vclock]", with(BackingKernel, false, "[vvar_vclock]")},
		{"ring buffer", x + "anon_inode:[perf_event]", with(BackingKernel, false, "anon_inode:[perf_event]")},
		{"no padding", strings.TrimRight(x, " "), with(BackingAnonymous, false, "")},
		{"vsyscall", "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Perm: PermExec, Backing: BackingVsyscall, Path: "[vsyscall]"}},
		{"shared and writable", "1000-2000 rw-s ffffffffffffffff 103:1f 18446744073709551615 /x",
			Mapping{Start: 0x1000, End: 0x2000, Offset: 1<<64 - 1, Major: 0x103, Minor: 0x1f, Inode: 1<<64 - 1, Perm: PermRead | PermWrite | PermShared, Backing: BackingFile, Path: "/x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseMaps(nil, []byte(tt.line+"\n"))
			if err != nil || len(got) != 1 || got[0] != tt.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseMapsMalformed(t *testing.T) {
	const good = "1000-2000 r-xp 00000000 00:00 0 \n"
	for _, line := range []string{
		"\n", "x", "1000", "1000-2000", "1000-2000 ", "1000-2000 r-xp", "1000-2000 r-xp 0 0", "1000-2000 r-xp 0 0:0", "1000-2000 r-xp 0 0:0 ",
		"-2000 r-xp 00000000 00:00 0", "2000-1000 r-xp 00000000 00:00 0", "1000-2000 r-xpz 0 00:00 0", "1000-10000000000000000 r-xp 0 0:0 0",
		"1000-2000 r-xp 0 0:0 -1", "1000-2000 r-xp 0 0:0 99999999999999999999", "1000-2000 r-xp 0 0:0 a",
	} {
		got, err := ParseMaps(nil, []byte(good+line))
		if err == nil {
			t.Errorf("%q parsed: %+v", line, got)
		} else if len(got) != 1 {
			t.Errorf("%q: %d mappings before it, want 1", line, len(got))
		}
	}
}

// format writes a mapping as the kernel does.
func format(m Mapping) string {
	perm := []byte("---p")
	for i, bit := range []Perm{PermRead, PermWrite, PermExec} {
		if m.Perm&bit != 0 {
			perm[i] = "rwx"[i]
		}
	}
	if m.Perm&PermShared != 0 {
		perm[3] = 's'
	}
	path := strings.ReplaceAll(m.Path, "\n", `\012`)
	if m.Deleted {
		path += " (deleted)"
	}
	return fmt.Sprintf("%08x-%08x %s %08x %02x:%02x %d %s\n", m.Start, m.End, perm, m.Offset, m.Major, m.Minor, m.Inode, path)
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte("560b5de8d000-560b5de92000 r-xp 00002000 fe:00 247026   /usr/bin/cat (deleted)\n1000-2000 rw-s 0 0:0 0 [vdso]\n"))
	f.Add([]byte("1000-2000 --xp 0 0:0 7 /a\\012b\n1000-2000 --xp 0 0:0 7 socket:[1]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		maps, err := ParseMaps(nil, data)
		if err != nil {
			return
		}
		var text strings.Builder
		for _, m := range maps {
			text.WriteString(format(m))
		}
		again, err := ParseMaps(nil, []byte(text.String()))
		if err != nil || !slices.Equal(maps, again) {
			t.Fatalf("%+v written and read again: %+v, %v", maps, again, err)
		}
	})
}

func TestMapsOfSelf(t *testing.T) {
	maps, err := FS{}.Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	pc := uint64(reflect.ValueOf(TestMapsOfSelf).Pointer())
	found := map[Backing]bool{}
	for i, m := range maps {
		found[m.Backing] = true
		if i > 0 && m.Start < maps[i-1].End && m.Backing != BackingVsyscall {
			t.Errorf("%+v overlaps the one before it", m)
		}
		if m.Start <= pc && pc < m.End && (!m.Executable() || m.Path != exe || m.Backing != BackingFile) {
			t.Errorf("this function lies in %+v", m)
		}
	}
	for _, b := range []Backing{BackingFile, BackingVDSO, BackingAnonymous} {
		if !found[b] {
			t.Errorf("no mapping with backing %d", b)
		}
	}
}

// threadTime is the CPU time of the thread that asks.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// TestSpeed bounds what a process of 1,000 mappings costs: 500 processes may
// start in a second. The best of many runs counts, in CPU time: the machine is shared.
func TestSpeed(t *testing.T) {
	pid := play(t, "maps")
	tests := []struct {
		name   string
		read   func([]Mapping, int) ([]Mapping, error)
		count  int
		within time.Duration
	}{
		// The kernel needs 0.9 ms to print 1,000 mappings, we 0.08 to parse them.
		{"all", FS{}.AppendMaps, 1000, 3 * time.Millisecond},
		{"executable", FS{}.AppendExecutable, 500, time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var maps []Mapping
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			best := time.Hour
			for range 50 {
				start := threadTime(t)
				var err error
				if maps, err = tt.read(maps[:0], pid); err != nil {
					t.Fatal(err)
				}
				best = min(best, threadTime(t)-start)
			}
			if len(maps) < tt.count {
				t.Fatalf("%d mappings, want over %d", len(maps), tt.count)
			}
			if best > tt.within && !raceEnabled {
				t.Errorf("%d mappings take %v, want < %v", len(maps), best, tt.within)
			}
			allocs := testing.AllocsPerRun(20, func() { maps, _ = tt.read(maps[:0], pid) })
			if allocs > 40 && !raceEnabled {
				t.Errorf("%v allocations, want a few per file", allocs)
			}
			t.Logf("%d mappings: %v, %v allocations", len(maps), best, allocs)
		})
	}
}

// TestExecutableEqualsMaps compares the kernel's two ways to tell mappings.
func TestExecutableEqualsMaps(t *testing.T) {
	dir := t.TempDir()
	pids := []int{os.Getpid(), play(t, "maps"), play(t, "leaderless"), cat(t, dir+"/odd\nname (deleted)"), cat(t, dir+`/back\slash b`)}
	if err := os.Remove(dir + `/back\slash b`); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		all, err := FS{}.Maps(pid)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(all, func(m Mapping) bool { return !m.Executable() || m.Backing == BackingVsyscall })
		got, err := FS{}.Executable(pid)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("process %d: %v\n%+v\nits maps file has\n%+v", pid, err, got, want)
		}
	}
}

// TestExecutableOfOldKernels takes the way of kernels before 6.11.
func TestExecutableOfOldKernels(t *testing.T) {
	f := fake(t, map[string]string{"5/stat": statLine(5, "a", 'S', 1, 0, 1), "5/maps": "1000-2000 r--p 0 1:2 3 /a\n" +
		"2000-3000 r-xp 1000 1:2 3 /a\nffffffffff600000-ffffffffff601000 --xp 0 0:0 0 [vsyscall]\n"})
	maps, err := f.Executable(5)
	if err != nil || len(maps) != 1 || maps[0].Start != 0x2000 {
		t.Errorf("%+v, %v", maps, err)
	}
}

func BenchmarkMaps1000(b *testing.B) {
	pid := play(b, "maps")
	var maps []Mapping
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if maps, err = (FS{}).AppendMaps(maps[:0], pid); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecutable500of1000(b *testing.B) {
	pid := play(b, "maps")
	var maps []Mapping
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if maps, err = (FS{}).AppendExecutable(maps[:0], pid); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseMaps1000(b *testing.B) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", play(b, "maps")))
	if err != nil {
		b.Fatal(err)
	}
	var maps []Mapping
	b.ReportAllocs()
	for b.Loop() {
		if maps, err = ParseMaps(maps[:0], data); err != nil {
			b.Fatal(err)
		}
	}
}
