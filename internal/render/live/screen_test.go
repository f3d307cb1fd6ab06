package live

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
)

var update = flag.Bool("update", false, "write golden files anew")

// window is a recording of one second: 80 samples in work, called by main, 20
// of them on another thread, and 20 in the kernel.
func window() *profile.Window {
	b := profile.NewBuilder(profile.Head{Duration: time.Second, Design: profile.DesignRandomised,
		Types: []profile.ValueType{profile.CPUTime(0)}, Idle: 500 * time.Millisecond, Watched: 2 * time.Second})
	b.Head().Exact.CPU = time.Second
	b.Head().AddLoss(profile.Loss{Reason: profile.LossTruncated, N: 5})
	one := b.Thread(profile.Thread{PID: 10, TID: 10, Process: "app", Name: "app", Exact: profile.Exact{CPU: 800 * time.Millisecond}})
	two := b.Thread(profile.Thread{PID: 10, TID: 11, Process: "app", Name: "worker-1", Exact: profile.Exact{CPU: 200 * time.Millisecond}})
	b.Thread(profile.Thread{PID: 10, TID: 12, Process: "app", Name: "unsampled", Exact: profile.Exact{CPU: 1}})
	work := b.Named(profile.Frame{Function: "work", File: "src/work.c", StartLine: 12, Kind: profile.KindNative})
	entry := b.Named(profile.Frame{Function: "main", Mapping: "/bin/app", Kind: profile.KindNative})
	hostile := b.Named(profile.Frame{Function: "evil\x1b]0;owned\x07\u202e", Kind: profile.KindNative, Mapping: "/tmp/\x1b[2J"})
	kernel := b.Named(profile.Frame{Function: "copy_page", Kind: profile.KindKernel, Mapping: "[kernel]"})
	add := func(thread profile.ThreadID, n int64, stack ...profile.LocationID) {
		b.Add(profile.Row{Stack: b.Stack(stack, profile.EndComplete), Thread: thread, N: n, Values: []int64{n * 1e7}, Squares: []float64{float64(n) * 1e14}})
	}
	add(one, 60, work, entry)
	add(two, 15, work, work, entry) // recursive: counted once
	add(two, 5, hostile, entry)
	add(one, 20, kernel, work, entry)
	return b.Window()
}

func table() Table {
	r := Rolling{Span: 2 * time.Second}
	for range 3 {
		r.Add(NewDigest(window()))
	}
	t := r.Table()
	t.Head.Target, t.Head.Rate, t.Head.Own = "process 10", 99, 0.01
	return t
}

func TestTable(t *testing.T) {
	got := table()
	if got.Head.Span != 2*time.Second || got.Head.Samples != 200 || got.Head.CPU != 2*time.Second || got.Head.Truncated != 10 || got.Head.Idle != 0.25 {
		t.Errorf("head %+v: want the two newest windows", got.Head)
	}
	want := []struct {
		name        string
		self, total float64
	}{{"work", 0.75, 0.95}, {"copy_page", 0.20, 0.20}, {"evil\x1b]0;owned\x07\u202e", 0.05, 0.05}, {"main", 0, 1}}
	if len(got.Functions) != len(want) {
		t.Fatalf("%d functions, want %d", len(got.Functions), len(want))
	}
	for i, w := range want {
		f := got.Functions[i]
		if f.Function != w.name || !near(f.Self, w.self) || !near(f.Total, w.total) {
			t.Errorf("row %d: %+v, want %+v", i, f, w)
		}
		if f.SelfLow > f.Self || f.SelfHigh < f.Self || f.SelfHigh-f.SelfLow > 0.2 {
			t.Errorf("row %d: interval %v to %v around %v", i, f.SelfLow, f.SelfHigh, f.Self)
		}
	}
	if f := got.Functions[0]; !near(f.Rate, 0.75) || f.Place != "work.c:12" {
		t.Errorf("work uses %v CPUs at %s, want 0.75 at work.c:12", f.Rate, f.Place)
	}
	if len(got.Threads) != 3 || got.Threads[0].TID != 10 || !near(got.Threads[0].CPU, 0.8) || got.Threads[0].Top != "work" || !near(got.Threads[0].TopSelf, 0.75) {
		t.Errorf("threads: %+v", got.Threads)
	}
	if empty := (&Rolling{}).Table(); len(empty.Functions) != 0 || empty.Head.Samples != 0 {
		t.Errorf("nothing was added, and there is %+v", empty)
	}
}

func near(a, b float64) bool { return a > b-1e-9 && a < b+1e-9 }

func press(s *Screen, keys ...Key) *Screen {
	for _, k := range keys {
		s.Press(k)
	}
	return s
}

func screen(keys ...Key) *Screen {
	s := &Screen{}
	s.Show(table())
	return press(s, keys...)
}

func TestScreenGolden(t *testing.T) {
	for name, s := range map[string]*Screen{
		"functions": screen(), "total": screen("t"), "threads": screen("T"), "name": screen("c"), "help": screen("?"),
		"search": screen("/", "W", "o", "r"), "found": screen("/", "w", "o", "r", KeyEnter), "paused": screen("p"),
	} {
		t.Run(name, func(t *testing.T) {
			got := []byte(strings.Join(s.Lines(100, 14), "\n") + "\n")
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("screen:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestScreenIsSafe: whatever is sampled, whatever is typed and however small
// the terminal, what is drawn holds no control character but our own colours,
// and fits.
func TestScreenIsSafe(t *testing.T) {
	for _, keys := range [][]Key{nil, {"T"}, {"/", "e", "v", "i", "\x1b", "\u202e"}, {"/", "(", KeyEnter}, {"?"}} {
		for _, size := range [][2]int{{100, 30}, {40, 6}, {12, 5}, {1, 1}, {0, 0}} {
			lines := screen(keys...).Lines(size[0], size[1])
			if len(lines) != max(size[1], 1) && size[1] > 0 {
				t.Errorf("%v: %d lines at a height of %d", keys, len(lines), size[1])
			}
			for _, line := range lines {
				if strings.ContainsAny(line, "\x1b\x07\u202e\n") {
					t.Errorf("%v: %q", keys, line)
				}
				if n := utf8.RuneCountInString(line); size[0] >= 60 && n > size[0] {
					t.Errorf("%v: %d cells of %d: %q", keys, n, size[0], line)
				}
			}
		}
	}
	colored := screen()
	colored.Color = true
	for _, line := range colored.Lines(100, 30) {
		for _, ours := range []string{"\x1b[0m", "\x1b[1m", "\x1b[7m"} {
			line = strings.ReplaceAll(line, ours, "")
		}
		if strings.ContainsAny(line, "\x1b\x07") {
			t.Errorf("%q", line)
		}
	}
}

// TestNoise: a share whose interval is wider than itself is marked, however rows
// are looked at; one that is sure, or was never hit, is not.
func TestNoise(t *testing.T) {
	for name, test := range map[string]struct {
		table func() Table
		keys  []Key
		want  map[string]bool
	}{
		"functions": {table, nil, map[string]bool{"work.c": false, "copy_page": false, "evil": true, "app": false}},
		"own code":  {mixed, []Key{"o"}, map[string]bool{"serve.py": false, "[runtime]": false, "hook.py": false, "[too deep]": true}},
	} {
		s := &Screen{}
		s.Show(test.table())
		lines := press(s, test.keys...).Lines(100, 14)
		for function, want := range test.want {
			at := slices.IndexFunc(lines[4:], func(line string) bool { return strings.Contains(line, function) })
			if at < 0 || strings.Contains(lines[4+at], "% ? ") != want {
				t.Errorf("%s: %s is marked: want %v\n%s", name, function, want, strings.Join(lines, "\n"))
			}
		}
	}
	census := Digest{head: profile.Head{Design: profile.DesignCensus}, samples: 100, value: 100}
	if m := mark(census.row(&functionSums{self: profile.Sum{N: 1, Value: 1, Squares: 1}})); m != "" {
		t.Errorf("what was counted is marked %q", m)
	}
}

func TestScreenKeys(t *testing.T) {
	if !screen().Press("q") || !screen("/").Press(KeyInterrupt) || screen("/").Press("q") {
		t.Error("q quits, but not while a search is typed; Ctrl-C always does")
	}
	s := screen(KeyEnd)
	if lines := s.Lines(100, 6); !strings.Contains(lines[4], "main") {
		t.Errorf("the end of the table: %q", lines)
	}
	press(s, KeyWheelUp, KeyUp, KeyPageUp)
	if lines := s.Lines(100, 6); !strings.Contains(lines[4], "work") {
		t.Errorf("back at the top: %q", lines)
	}
	press(s, "/", "m", "a", "x", KeyBackspace, "i", "n", KeyEnter)
	if lines := s.Lines(100, 8); !strings.Contains(lines[4], "main") || !strings.Contains(lines[7], "1 rows match") {
		t.Errorf("search: %q", lines)
	}
	press(s, KeyEscape)
	if lines := s.Lines(100, 8); !strings.Contains(lines[4], "work") {
		t.Errorf("after Esc: %q", lines)
	}
	if s.Paused() || !press(s, "p").Paused() {
		t.Error("p pauses")
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, table(), 2); err != nil {
		t.Fatal(err)
	}
	if out := b.String(); !strings.Contains(out, "work.c:12") || !strings.Contains(out, "2 more functions") || strings.Contains(out, "\x1b") {
		t.Errorf("text:\n%s", out)
	}
}

// TestTitleAtFirst says what is waited for, not that 0 ns are shown.
func TestTitleAtFirst(t *testing.T) {
	s := &Screen{}
	if title := s.Lines(100, 10)[0]; !strings.Contains(title, "waiting for the first samples") || strings.Contains(title, "0 ns") {
		t.Errorf("before any sample: %q", title)
	}
	s.Show(Table{Head: Head{Span: time.Second, Naming: true}})
	if title := s.Lines(100, 10)[0]; !strings.Contains(title, "last 1 s") && !strings.Contains(title, "last 1.00 s") || !strings.Contains(title, "looking up names") {
		t.Errorf("before names are known: %q", title)
	}
}
