package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/whose"
	"atys.dev/atys/internal/render/live"
	"atys.dev/atys/test/testwait"
)

// hostile builds and starts a program whose function, thread and file have
// names that would steer a terminal.
func hostile(t *testing.T) (pid int) {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "evil.c"), filepath.Join(dir, "evil\x1b[31m")
	text := `#include <sys/prctl.h>
volatile long sink;
__attribute__((noinline)) void evil(void) { for (;;) sink++; }
int main(void) { prctl(PR_SET_NAME, "t\x1b[2Jh"); evil(); sink++; return 0; }
`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cc", "-O1", "-o", binary, source},
		{"objcopy", "--redefine-sym", "evil=evil\x1b]0;owned\x07\x1b[2J", binary}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	c := exec.Command(binary)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c.Process.Pid
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
}

// atysPath is this binary by the name by which it is atys; see TestMain.
func atysPath(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "atys")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// pane is a terminal that a test types on and looks at.
type pane struct{ socket string }

func newPane(t *testing.T, command string) pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	p := pane{socket: filepath.Join(t.TempDir(), "tmux")}
	p.tmux(t, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "24", "sh", "-c", command)
	t.Cleanup(func() { p.tmux(t, "kill-server") })
	return p
}

func (p pane) tmux(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// shows waits until the screen holds all of the texts.
func (p pane) shows(t *testing.T, texts ...string) string {
	t.Helper()
	screen := ""
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		screen = p.tmux(t, "capture-pane", "-p")
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(screen, text)
		}
		if !missing {
			return screen
		}
	}
	t.Fatalf("the screen does not show %q:\n%s", texts, screen)
	return ""
}

// TestTopOnATerminal types what a user types, and looks.
func TestTopOnATerminal(t *testing.T) {
	needRoot(t)
	pid := hostile(t)
	p := newPane(t, fmt.Sprintf("'%s' top -p %d; echo status $?; stty -a | tr ' ' '\\n' | grep icanon; exec sleep 60", atysPath(t), pid))
	screen := p.shows(t, fmt.Sprintf("process %d", pid), "SELF*", `evil\x1b]0;owned\x07\x1b[2J`)
	if first, _, _ := strings.Cut(screen, "\n"); !strings.HasPrefix(first, "atys top") {
		t.Errorf("a name has moved the screen: %q", screen)
	}
	if title := p.tmux(t, "display-message", "-p", "#{pane_title}"); strings.Contains(title, "owned") {
		t.Errorf("a name has set the terminal's title: %q", title)
	}
	p.tmux(t, "send-keys", "T")
	p.shows(t, "MOSTLY IN", `t\x1b[2Jh`, strconv.Itoa(pid))
	p.tmux(t, "send-keys", "T", "/", "m", "a", "i", "n", "Enter")
	if screen := p.shows(t, "rows match /main/", "main"); strings.Contains(screen, "owned") {
		t.Errorf("the search shows others too:\n%s", screen)
	}
	p.tmux(t, "send-keys", "Escape")
	p.shows(t, "q quit", "owned")
	p.tmux(t, "send-keys", "t")
	p.shows(t, "TOTAL*")
	p.tmux(t, "send-keys", "p")
	p.shows(t, "PAUSED")
	p.tmux(t, "send-keys", "?")
	p.shows(t, "leave this help")
	p.tmux(t, "resize-window", "-x", "60", "-y", "8")
	p.tmux(t, "send-keys", "q") // the help's keys are the table's
	p.shows(t, "status 0", "icanon")
	if screen := p.shows(t, "status 0"); strings.Contains(screen, "-icanon") {
		t.Errorf("the terminal is left raw:\n%s", screen)
	}
}

// TestTopWithoutATerminal prints tables.
func TestTopWithoutATerminal(t *testing.T) {
	needRoot(t)
	atys, pid := atysPath(t), strconv.Itoa(hostile(t))
	out, err := exec.Command(atys, "top", "-p", pid, "--once", "-n", "3").Output()
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out); !strings.Contains(text, `evil\x1b]0;owned\x07`) || strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("top --once: %q", text)
	}
	if out, err = exec.Command(atys, "top", "-p", pid, "--once", "--json").Output(); err != nil {
		t.Fatal(err)
	}
	var table live.Table
	if err := json.Unmarshal(out, &table); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if len(table.Functions) == 0 || !strings.HasPrefix(table.Functions[0].Function, "evil\x1b") || table.Functions[0].Self < 0.8 || table.Head.Samples == 0 {
		t.Errorf("top --json: %+v", table)
	}
	if out, err = exec.Command(atys, "dump", "-p", pid).Output(); err != nil {
		t.Fatal(err)
	}
	if text := string(out); !strings.Contains(text, `evil\x1b]0;owned\x07`) || strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("dump: %q", text)
	}
}

// TestTopByProcess shows processes while functions have no names.
func TestTopByProcess(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(10)}})
	stack := b.Stack([]profile.LocationID{b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ab", Offset: 7})}, profile.EndComplete)
	for i, process := range []string{"shop", "shop", "cart"} {
		b.Add(profile.Row{Stack: stack, Thread: b.Thread(profile.Thread{PID: 1, TID: i + 1, Process: process, Name: "worker"}), N: 1, Values: []int64{10}, Squares: []float64{100}})
	}
	made := &tables{classifier: whose.New(nil), usage: newUsage(time.Now), flags: topFlags{window: time.Second}}
	table := made.table(&live.Rolling{Span: time.Second}, byProcess(b.Window()))
	if len(table.Functions) != 2 || table.Functions[0].Function != "[shop]" || table.Functions[0].N != 2 || len(table.Threads) != 3 || table.Head.Samples != 3 {
		t.Errorf("%+v", table)
	}
}
