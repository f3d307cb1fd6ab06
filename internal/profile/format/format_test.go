package format_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/profile/profiletest"
)

func zipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	if _, err := zip.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every real file is recognised by its content, gzipped or not.
func TestDecodeRecognises(t *testing.T) {
	tests := []struct{ folder, typ string }{{"perf", ""}, {"pprof", ""}, {"folded", "samples"}}
	for _, test := range tests {
		for _, name := range corpus.Names(test.folder) {
			if strings.HasSuffix(name, ".c.txt") || strings.HasSuffix(name, ".go.txt") || strings.HasSuffix(name, ".py.txt") {
				continue // the programs behind the files
			}
			t.Run(name, func(t *testing.T) {
				data := corpus.Read(name)
				w, err := format.Decode(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				if w.N() == 0 || test.typ != "" && w.Types[0].Kind != test.typ {
					t.Errorf("%d samples of %+v", w.N(), w.Types)
				}
				// Taken for folded, perf's header would end up as names.
				if test.folder == "perf" && w.Types[0].Unit == "count" && w.Types[0].Period != 1 && len(w.Types) == 1 {
					t.Errorf("types %+v", w.Types)
				}
				if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
					return
				}
				again, err := format.Decode(bytes.NewReader(zipped(t, data)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := profiletest.Diff(w, again); diff != "" {
					t.Errorf("differs when gzipped:\n%s", diff)
				}
			})
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", "the file is empty"},
		{"perf.data", "PERFILE2\x68\x00", "perf script -i FILE"},
		{"flight recorder", "FLR\x00\x00", "Java Flight Recorder"},
		{"program", "\x7fELF\x02", "it is a program"},
		{"speedscope", `{"$schema":"x"}`, "can be written, not read"},
		{"prose", "There is nothing\nin this file\n", `line 1: "nothing" is not a count`},
		{"damaged gzip", "\x1f\x8b\x08\x00garbage", "uncompress"},
		{"sums too large", "a;b 9223372036854775807\na;c 9223372036854775807\n", "add up to 1.84e+19"},
		{"binary", "\x00\x01\x02\x03", "read pprof"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := format.Decode(strings.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q in it", err, test.want)
			}
		})
	}
	if _, err := format.Read(filepath.Join(t.TempDir(), "none")); err == nil || !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), "none") != 1 {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := format.Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a folder: %v", err)
	}
}

func TestByExtension(t *testing.T) {
	tests := map[string]format.Format{
		"a.pb.gz": format.PProf, "A.PPROF": format.PProf, "x/y.folded": format.Folded, "b.collapsed": format.Folded,
		"c.speedscope.json": format.Speedscope, "d.cpuprofile": format.CPUProfile, "e.txt": format.PerfScript,
	}
	for name, want := range tests {
		if got, err := format.ByExtension(name); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	var unknown *format.UnknownExtensionError
	for _, name := range []string{"a", "a.json", "a.gz", "folded", ""} {
		_, err := format.ByExtension(name)
		if !errors.As(err, &unknown) || !strings.Contains(err.Error(), ".pb.gz .pprof .folded") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What a format holds comes back: all of it from pprof, names and counts from folded.
func TestRoundTrips(t *testing.T) {
	dir := t.TempDir()
	for seed := range uint64(30) {
		w := profiletest.Random(rand.New(rand.NewPCG(seed, 2)))
		through := func(f format.Format) *profile.Window {
			path := filepath.Join(dir, "p")
			if err := format.WriteFile(path, f, w, format.Options{}); err != nil {
				t.Fatal(err)
			}
			got, err := format.Read(path)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, f, err)
			}
			return got
		}
		if diff := profiletest.Diff(w, through(format.PProf)); diff != "" {
			t.Errorf("seed %d, pprof:\n%s", seed, diff)
		}
		if got, want := named(through(format.Folded)), named(w); !slices.Equal(got, want) {
			t.Errorf("seed %d, folded:\n%q\n%q", seed, got, want)
		}
		for _, f := range []format.Format{format.Speedscope, format.CPUProfile} {
			if err := format.Write(io.Discard, f, w, format.Options{Thread: true}); err != nil {
				t.Errorf("seed %d, %s: %v", seed, f, err)
			}
		}
	}
}

// named is what folded stacks hold of a window.
func named(w *profile.Window) []string {
	counts := map[string]int64{}
	for _, r := range w.Rows.All() {
		s := w.Stacks[r.Stack]
		key := ""
		if s.End.Truncated() {
			key = s.End.String()
		}
		for _, f := range w.AppendStack(nil, r.Stack) {
			key += "\x00" + f.Function
			if f.Kind == profile.KindKernel {
				key += "\x01"
			}
		}
		counts[key] += r.N
	}
	var out []string
	for key, n := range counts {
		out = append(out, strings.Repeat("*", int(n))+key)
	}
	slices.Sort(out)
	return out
}

func TestWriteRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.txt")
	err := format.WriteFile(path, format.PerfScript, &profile.Window{}, format.Options{})
	if err == nil || !strings.Contains(err.Error(), "can be read, not written; use one of .pb.gz") {
		t.Errorf("perf script: %v", err)
	}
	if err := format.WriteFile(path, "pdf", &profile.Window{}, format.Options{}); err == nil || !strings.Contains(err.Error(), `no format "pdf"`) {
		t.Errorf("pdf: %v", err)
	}
	if names := folder(t, filepath.Dir(path)); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}

func folder(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	check := func(want string, mode os.FileMode, files ...string) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) != want || info.Mode().Perm() != mode {
			t.Errorf("%q with mode %o, want %q with %o", data, info.Mode().Perm(), want, mode)
		}
		if got := folder(t, dir); !slices.Equal(got, files) {
			t.Errorf("files %q, want %q", got, files)
		}
	}
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	if err := format.Replace(path, text("first")); err != nil {
		t.Fatal(err)
	}
	check("first", 0o640, "out")

	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	if err := format.Replace(path, text("second")); err != nil {
		t.Fatal(err)
	}
	check("second", 0o604, "out")

	broken := errors.New("broken")
	err := format.Replace(path, func(w io.Writer) error { io.WriteString(w, "half"); return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got error %v", err)
	}
	check("second", 0o604, "out")

	link := filepath.Join(dir, "link")
	if err := os.Symlink("out", link); err != nil {
		t.Fatal(err)
	}
	if err := format.Replace(link, text("third")); err != nil {
		t.Fatal(err)
	}
	check("third", 0o604, "link", "out")

	if err := format.Replace("/dev/null", text("gone")); err != nil {
		t.Errorf("a device: %v", err)
	}
	if err := format.Replace(dir, text("x")); err == nil || !strings.Contains(err.Error(), "it is a folder") {
		t.Errorf("a folder: %v", err)
	}
	if err := format.Replace(filepath.Join(dir, "none", "out"), text("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("n", 255))
	if err := format.Replace(long, text("x")); err != nil {
		t.Errorf("a long name: %v", err)
	}
}

// A full disk leaves the old file as it was and nothing else.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(dir, 0)
	path := filepath.Join(dir, "out.folded")
	if err := os.WriteFile(path, []byte("main 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		name := strings.Repeat("x", r.IntN(20)) + string(rune('a'+r.IntN(26))) + strings.Repeat("y", r.IntN(200))
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: name, File: name, Line: r.IntN(1e6)})}, 0), N: 1, Values: []int64{1}})
	}
	for _, f := range []format.Format{format.Folded, format.PProf, format.Speedscope, format.CPUProfile} {
		err := format.WriteFile(path, f, b.Window(), format.Options{})
		if !errors.Is(err, syscall.ENOSPC) || !strings.HasSuffix(err.Error(), `out.folded": no space left on device`) {
			t.Errorf("%s: got error %v", f, err)
		}
		if names := folder(t, dir); !slices.Equal(names, []string{"out.folded"}) {
			t.Errorf("%s: left behind %q", f, names)
		}
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "main 1\n" {
		t.Errorf("the old file holds %q, %v", data, err)
	}
}

// Whatever is recognised and read can be written in every format.
func FuzzDecode(f *testing.F) {
	for _, folder := range []string{"perf", "pprof", "folded"} {
		for _, name := range corpus.Names(folder) {
			data := corpus.Read(name)
			f.Add(data[:min(len(data), 1000)])
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		w, err := format.Decode(bytes.NewReader(in))
		if err != nil {
			return
		}
		negative := slices.ContainsFunc(w.Rows.Values, func(v int64) bool { return v < 0 })
		for _, to := range []format.Format{format.PProf, format.Folded, format.Speedscope, format.CPUProfile} {
			if err := format.Write(io.Discard, to, w, format.Options{Thread: true, Process: true}); err != nil && !negative {
				t.Fatalf("%s: %v", to, err)
			}
		}
	})
}
