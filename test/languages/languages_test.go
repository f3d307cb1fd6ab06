// Package languages records live programs of each language and compares the chains of calls that are seen with those that are legal.
package languages

import (
	"bufio"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/test/testwait"
)

// shared is a directory of what several tests use.
var shared string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if shared, err = os.MkdirTemp("", "atys-languages"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(shared)
	return m.Run()
}

// needsBPF skips where a recording cannot be made.
func needsBPF(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("records live processes")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load BPF")
	}
}

// versions chooses among the versions of a runtime that are here: all of them
// under ATYS_MATRIX, which make test-runtimes sets, else the one that a user
// gets by its name, so that make test takes minutes. Where that is none of them,
// as with the scripts that pyenv puts before its own, it is the first of those
// whose version the command names.
func versions(t *testing.T, found map[string]string, command string) map[string]string {
	t.Helper()
	if os.Getenv("ATYS_MATRIX") != "" || len(found) < 2 {
		return found
	}
	names := slices.Sorted(maps.Keys(found))
	chosen := names[0]
	if i := slices.IndexFunc(names, func(name string) bool {
		return strings.HasPrefix(name, strings.TrimLeft(command, "abcdefghijklmnopqrstuvwxyz"))
	}); i >= 0 {
		chosen = names[i]
	}
	if path, err := exec.LookPath(command); err == nil {
		path, _ = filepath.EvalSymlinks(path)
		for name, candidate := range found {
			if real, _ := filepath.EvalSymlinks(candidate); real == path {
				chosen = name
			}
		}
	}
	return map[string]string{chosen: found[chosen]}
}

// tooMany tells whether more samples show impossible calls than may be owed to
// the lists of the possible ones, or to an instant in which a runtime's own
// records are between two states: one, or one in a thousand. Each is logged.
func tooMany(wrong, all int64) bool { return wrong > max(1, all/1000) }

// launch starts a program that is to be recorded, and waits until it prints a
// line. It is killed when the test ends.
func launch(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- line
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() && complaints.Len() > 0 {
			t.Logf("%s said:\n%s", cmd.Path, complaints.String())
		}
	})
	select {
	case line := <-lines:
		if line == "" {
			t.Fatalf("%s ended before it was ready", cmd.Path)
		}
	case <-time.After(testwait.Longest(t)):
		t.Fatalf("%s does not become ready", cmd.Path)
	}
	return cmd.Process.Pid
}

// observed is one stack that was seen.
type observed struct {
	pid, tid int
	frames   []profile.Frame // outermost first
	samples  int64
	end      profile.End
}

// begin starts a recording, and waits until the runtimes of the processes are read.
func begin(t *testing.T, frequency float64, pids ...int) *recorder.Recorder {
	t.Helper()
	r, err := recorder.Start(recorder.Setup{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, recorder.Options{Targets: recorder.Targets{PIDs: pids}, Event: "task-clock", Frequency: frequency, Threads: true, MayAsk: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("end recording: %v", err)
		}
	})
	return r
}

// cut drops what was recorded so far, and gives what is in the time to come: on a busy
// machine in several times as long, until there are samples to judge by.
func cut(t *testing.T, r *recorder.Recorder, length time.Duration) (stacks []observed) {
	t.Helper()
	const enough, patience = 400, 8
	drop(t, r)
	samples := int64(0)
	for range patience {
		for _, o := range observe(t, r, length) {
			stacks = append(stacks, o)
			samples += o.samples
		}
		if samples >= enough {
			break
		}
	}
	return stacks
}

// cutEnough is cut for as long as it takes until each of the processes has so
// many samples: on a busy machine that is longer. It gives up in the end.
func cutEnough(t *testing.T, r *recorder.Recorder, length time.Duration, enough int64, pids []int) (stacks []observed) {
	t.Helper()
	const patience = 8
	samples := map[int]int64{}
	drop(t, r)
	for range patience {
		for _, o := range observe(t, r, length) {
			stacks = append(stacks, o)
			samples[o.pid] += o.samples
		}
		if !slices.ContainsFunc(pids, func(pid int) bool { return samples[pid] < enough }) {
			break
		}
	}
	return stacks
}

func drop(t *testing.T, r *recorder.Recorder) {
	t.Helper()
	if _, err := r.Cut(); err != nil {
		t.Fatal(err)
	}
}

func observe(t *testing.T, r *recorder.Recorder, length time.Duration) (stacks []observed) {
	t.Helper()
	w, err := r.Record(t.Context(), length, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range w.Rows.All() {
		thread := w.Thread(row.Thread)
		frames := w.AppendStack(nil, row.Stack)
		stacks = append(stacks, observed{thread.PID, thread.TID, frames, row.N, w.Stacks[row.Stack].End})
	}
	return stacks
}

// chain joins the functions of the kinds given, outermost first.
func (o observed) chain(kinds ...profile.Kind) string {
	var names []string
	for _, f := range o.of(kinds...) {
		names = append(names, f.Function)
	}
	return strings.Join(names, ";")
}

// of gives the frames of the kinds given, outermost first.
func (o observed) of(kinds ...profile.Kind) (frames []profile.Frame) {
	for _, f := range o.frames {
		for _, kind := range kinds {
			if f.Kind == kind {
				frames = append(frames, f)
			}
		}
	}
	return frames
}
