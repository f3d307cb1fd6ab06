package replay

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/unwind/cfi/rows"
	"atys.dev/atys/test/victims"
)

var update = flag.Bool("update", false, "record the images and golden stacks anew; needs root, compilers and elfutils")

const include = "../../bpf/include"

// built is where the walker lies that all tests start; TestMain removes it.
var built string

// build builds a walker that ends at undefined behaviour, but for shifts of
// negative numbers, which our compilers define, and words at odd addresses,
// which BPF's and x86's may have.
var build = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "replay"); err != nil {
		return "", err
	}
	return Build(built, include, "-fsanitize=address,undefined", "-fno-sanitize=shift,alignment", "-fno-sanitize-recover")
})

func TestMain(m *testing.M) {
	status := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(status)
}

// machine starts a walker.
func machine(t testing.TB) *Machine {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Start(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// meets tells whether a walk follows a rule of some type.
func (i *Image) meets(w Walk, wanted rows.Type) bool {
	return slices.ContainsFunc(w.Frames, func(f unwind.Frame) bool {
		if f.Executable == 0 {
			return false
		}
		return i.Files[f.Executable-1].rule(f.Offset).Type() == wanted
	})
}

// busiest is the thread of a process that has used most CPU time.
func busiest(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	busiest, most := pid, -1
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread is gone
		}
		var used int
		if _, err := fmt.Sscan(string(text), &used); err == nil && used > most {
			busiest, most = must(t, filepath.Base(filepath.Dir(path))), used
		}
	}
	return busiest
}

func must(t *testing.T, number string) int {
	t.Helper()
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var recordings = []struct {
	name, victim string
	options      victims.Options
	oracle       bool      // eu-stack can walk it
	rule         rows.Type // that the walk must meet
	frames       int       // that it must have at least
}{
	{"c", "burn25", victims.Options{}, true, rows.SP, 20},
	{"c-static", "mixed", victims.Options{Static: true}, true, rows.SP, 4},
	{"c-frame-pointers", "mixed", victims.Options{FramePointers: true}, true, rows.BP, 4},
	{"c-musl", "mixed", victims.Options{Musl: true}, false, rows.SP, 4},
	{"c-realigned", "mixed", victims.Options{Flags: []string{"-mstackrealign", "-mincoming-stack-boundary=3", "-mpreferred-stack-boundary=6"}}, true, rows.BPDeref, 4},
	{"c-signal", "signals", victims.Options{}, true, rows.Signal, 4},
	{"c-deep", "deep", victims.Options{}, true, rows.SP, 90},
	{"c++", "throwing", victims.Options{}, true, rows.SP, 4},
	{"rust", "rusty", victims.Options{}, true, rows.SP, 4},
	{"go", "gopher", victims.Options{}, false, rows.SP, 4},
}

// TestRecord makes the images. It is not run without -update: what it records
// is another instant each time.
func TestRecord(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	m := machine(t)
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			path, err := victims.Build(t.TempDir(), r.victim, r.options)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			victim, err := victims.Start(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // until it is at its work
			of := &recorder{machine: m, pid: victim.PID, tid: busiest(t, victim.PID), files: map[string]*loadedFile{}}
			image := of.record(t, r.oracle, func(i *Image, w Walk) bool { return len(w.Frames) >= r.frames && i.meets(w, r.rule) })
			image.About = r.name
			save(t, m, image)
		})
	}
}

// save writes an image and its golden stack.
func save(t *testing.T, m *Machine, image *Image) {
	t.Helper()
	var b bytes.Buffer
	if err := image.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", image.About+".image"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", image.About+".golden"), []byte(image.text(walked(t, m, image))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// recorded lists the files of images.
func recorded(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.image")
	if err != nil || len(paths) == 0 {
		t.Fatal("no images: ", err)
	}
	return paths
}

// images gives each recorded image.
func images(t *testing.T, each func(t *testing.T, golden string, i *Image)) {
	t.Helper()
	for _, path := range recorded(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".image"), func(t *testing.T) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			i, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			golden, err := os.ReadFile(strings.TrimSuffix(path, ".image") + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			each(t, string(golden), i)
		})
	}
}

func TestGolden(t *testing.T) {
	m := machine(t)
	images(t, func(t *testing.T, golden string, i *Image) {
		if got := i.text(walked(t, m, i)); got != golden {
			t.Errorf("got %s\nwant %s", got, golden)
		}
	})
}

// TestFaults makes each read fail in turn. The walk must say so, keep the
// frames it has, and invent none.
func TestFaults(t *testing.T) {
	m := machine(t)
	images(t, func(t *testing.T, golden string, i *Image) {
		if len(i.Runtimes) > 0 {
			t.Skip("walks of languages have fallbacks: see TestFaultsOfLanguages")
		}
		whole := walked(t, m, i)
		if whole.Reads == 0 {
			t.Error("the walk reads nothing: no fault was injected")
		}
		for nth := range whole.Reads {
			w, err := m.WalkFailing(nth)
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Failed) == 0 {
				t.Errorf("read %d: the fault was not met", nth)
			}
			if w.End != profile.EndUnreadable {
				t.Errorf("read %d failed, and the walk ended as %q", nth, w.End)
			}
			if len(w.Frames) > len(whole.Frames) || !slices.Equal(w.Frames, whole.Frames[:len(w.Frames)]) {
				t.Errorf("read %d failed: frames\n%s are no prefix of\n%s", nth, i.text(w), golden)
			}
		}
	})
}
