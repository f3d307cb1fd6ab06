package external

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/proc"
)

const fakePID = 4711

// fakeJVM is a /proc in which one process is, a JVM that takes orders.
func fakeJVM(t *testing.T) proc.FS {
	t.Helper()
	root := t.TempDir()
	process := filepath.Join(root, fmt.Sprint(fakePID))
	for _, dir := range []string{"root/tmp", "cwd"} {
		if err := os.MkdirAll(filepath.Join(process, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"status":  fmt.Sprintf("Name:\tjava\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\nNSpid:\t%[3]d\nSigCgt:\t0000000000000004\n", os.Geteuid(), os.Getegid(), fakePID),
		"maps":    "7f0000000000-7f0000001000 r-xp 00000000 08:01 99 /usr/lib/jvm/lib/server/libjvm.so\n",
		"cmdline": "java\x00Victim\x00",
	} {
		if err := os.WriteFile(filepath.Join(process, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proc.FS{Root: root}
}

// fakeAsprof makes a program that notes each order, and how many folders of ours
// there are at the time, and then does as a shell script says. That finds in $1
// which order it is, and in $2 where to log.
func fakeAsprof(t *testing.T, fs proc.FS, script string) (program, notes string) {
	t.Helper()
	dir := t.TempDir()
	program, notes = filepath.Join(dir, "asprof"), filepath.Join(dir, "notes")
	root := filepath.Join(fs.Root, fmt.Sprint(fakePID), "root")
	text := fmt.Sprintf("#!/bin/sh\nset -- \"${5%%%%,*}\" \"%[1]s${5##*log=}\"\necho $1 $(ls -d %[1]s/tmp/atys-* | wc -l) >>%[2]s\n%[3]s\n", root, notes, script)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, notes
}

// An order to start that was not waited for is taken back while the folder is
// there, and one that was refused is not: what is at work then is somebody else's.
func TestStartIsTakenBack(t *testing.T) {
	needs(t, "sh", "sleep")
	const slow = "if [ $1 = start ]; then exec sleep 60; fi"
	for _, c := range []struct {
		name, script string
		cancel       bool
		want, orders string
	}{
		{"not in time", slow, false, "did not end in time", "start 1\nstop 1\n"},
		{"cancelled", slow, true, "was killed by signal 9", "start 1\nstop 1\n"},
		{"nor is the stop answered", "exec sleep 60", false, "may sample for 2m0s", "start 1\nstop 1\n"},
		{"refused", `echo "[ERROR] no" >$2; exit 1`, false, "async-profiler says: no", "start 1\n"},
		{"somebody else's", `echo "[ERROR] Profiler already started" >$2; exec sleep 60`, false, "for somebody else", "start 1\n"},
		{"obeyed", "", false, "", "start 1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fs := fakeJVM(t)
			program, notes := fakeAsprof(t, fs, c.script)
			folder, err := makeFolder(fs, fakePID, "")
			if err != nil {
				t.Fatal(err)
			}
			a := &asyncProfiler{program: program, options: Options{FS: fs, Longest: time.Minute}, pid: fakePID, folder: folder, patience: time.Minute}
			if strings.Contains(c.script, "sleep 60") { // which is not waited for
				a.patience = 5 * time.Second
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancel {
				a.patience = time.Minute
				go func() {
					for data := []byte(nil); len(data) == 0; data, _ = os.ReadFile(notes) {
						time.Sleep(time.Millisecond)
					}
					cancel()
				}()
			}
			began := time.Now()
			r, err := a.start(ctx, 99)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if data, err := os.ReadFile(notes); err != nil || string(data) != c.orders {
				t.Errorf("orders %q, %v, want %q", data, err, c.orders)
			}
			if r != nil {
				cancel()
				<-r.done()
			}
			if err := a.release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A JVM that obeyed an order to start which nobody waited for does not sample on.
func TestStartIsTakenBackFromJVM(t *testing.T) {
	needsRoot(t)
	pid := javaVictim(t)
	asprof, err := exec.LookPath("asprof")
	if err != nil {
		t.Fatal(err)
	}
	tool, err := newAsyncProfiler(Options{Kernel: AsyncProfiler, PIDs: []int{pid}, AllowAttach: true, Longest: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(t.TempDir(), "asprof")
	script := fmt.Sprintf("#!/bin/sh\n%s \"$@\"\ncase $5 in start*) exec sleep 60; esac\n", asprof)
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	tool.program, tool.patience = wrapper, 5*time.Second
	if _, err := tool.start(t.Context(), 99); err == nil || !strings.Contains(err.Error(), "did not end in time") {
		t.Errorf("error %v", err)
	}
	tool.program, tool.patience = asprof, time.Minute
	const answer = "answer"
	if err := tool.order(t.Context(), "status,file="+tool.folder.path(answer)); err != nil {
		t.Error(err)
	}
	out, err := os.ReadFile(tool.folder.path(answer))
	if err != nil || !strings.Contains(string(out), "not active") {
		t.Errorf("async-profiler says %q, %v", out, err)
	}
	if err := tool.release(); err != nil {
		t.Error(err)
	}
	clean(t, pid)
}
