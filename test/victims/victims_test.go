package victims

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/test/testwait"
)

func build(t *testing.T, name string, o Options) string {
	t.Helper()
	// Looked at so that the test cache knows that results depend on it: the
	// go command that builds it is another process.
	if _, err := os.Stat("gopher/main.go"); err != nil {
		t.Fatal(err)
	}
	path, err := Build(t.TempDir(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// log is what a test needs to know of a victim's log; test/truth has the
// reader that profiles are compared with.
type log struct {
	stacks            []string
	ns                []float64
	slots             int
	accounted, cpu    float64
	outside           float64
	spawned, children int
}

func parse(t *testing.T, text []byte) (l log) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var v struct {
			Stacks         []string
			NS             []float64
			Accounted, CPU float64
			Outside        float64
			Spawned        int
			Role           string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		switch {
		case v.Stacks != nil:
			l.stacks, l.ns = v.Stacks, make([]float64, len(v.Stacks))
		case v.NS != nil:
			l.slots++
			for i, ns := range v.NS {
				l.ns[i] += ns
			}
		case v.Role != "":
			l.children++
		default:
			l.accounted, l.outside, l.cpu, l.spawned = v.Accounted, v.Outside, v.CPU, v.Spawned
		}
	}
	return l
}

// Each victim that keeps truth accounts for the CPU time the kernel says it
// used, and burns in each of its sites.
func TestVictimsAccountForTheirTime(t *testing.T) {
	for _, name := range Names() {
		if name == "burn25" || name == "forkstorm" || name == "idle" || name == "shortlived" {
			continue // have logs of their own
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := build(t, name, Options{})
			v, err := Start(t.Context(), path, "600")
			if err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "it has burned enough", func() bool { return used(t, v.PID) >= 500*time.Millisecond })
			text, err := v.Stop()
			if err != nil {
				t.Fatal(err)
			}
			l := parse(t, text)
			if l.slots == 0 || len(l.stacks) < 2 {
				t.Fatalf("no truth in %q", text)
			}
			// Starting up and printing the log are counted by themselves: on a busy
			// machine the kernel charges them with interrupts and time stolen by the
			// host. What is missing still is starting and ending threads.
			if missing := l.cpu - l.outside - l.accounted; missing < 0 || missing > max(0.03*1e9, 0.05*l.cpu) {
				t.Errorf("of %.0f ns, %.0f are accounted for and %.0f were used outside", l.cpu, l.accounted, l.outside)
			}
			for i, ns := range l.ns {
				share := ns / l.accounted
				if i == 0 && share > 0.25 { // 0.02 to 0.05 on an idle machine: each switch of threads is a part of it
					t.Errorf("%.3f of the time is between burns", share)
				}
				if i > 0 && share < 0.002 {
					t.Errorf("%q has %.4f of the time", l.stacks[i], share)
				}
			}
		})
	}
}

// used is the CPU time of a process. The clock of another process is named by its
// number: see clock_getcpuclockid(3).
func used(t *testing.T, pid int) time.Duration {
	t.Helper()
	const scheduled = 2
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}

func TestStopEndsAVictimEarly(t *testing.T) {
	v, err := Start(t.Context(), build(t, "mixed", Options{Static: true, Strip: true}), "100")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	early := v.Ended()
	text, err := v.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if l := parse(t, text); l.slots == 0 {
		t.Errorf("no truth in %q", text)
	}
	if early || !v.Ended() {
		t.Errorf("it has ended: %v before it was stopped, %v after", early, v.Ended())
	}
	if _, err := v.Stop(); err != nil {
		t.Errorf("stop again: %v", err)
	}
}

func TestStartRefusesWhatIsNotReady(t *testing.T) {
	if _, err := Start(context.Background(), "/bin/true"); err == nil {
		t.Error("a program without a ready line was started")
	}
	if _, err := Start(context.Background(), "/nonexistent"); err == nil {
		t.Error("a missing program was started")
	}
	if _, err := Build(t.TempDir(), "nobody", Options{}); err == nil || !strings.Contains(err.Error(), "mixed") {
		t.Errorf("an unknown victim: %v, want the list of victims", err)
	}
}

func TestForkstorm(t *testing.T) {
	v, err := Start(t.Context(), build(t, "forkstorm", Options{}), "0.5", "60")
	if err != nil {
		t.Fatal(err)
	}
	text, err := v.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if l := parse(t, text); l.children == 0 || l.children != l.spawned {
		t.Errorf("%d of %d processes reported", l.children, l.spawned)
	}
}

// TestShortlived has each of its modes run, and end when it is told to.
func TestShortlived(t *testing.T) {
	path := build(t, "shortlived", Options{})
	for _, mode := range []string{"threads", "processes", "pool", "busy"} {
		v, err := Start(t.Context(), path, "100", mode, "1", "1", "4")
		if err != nil {
			t.Fatal(err)
		}
		text, err := v.Stop() // it runs once at least
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if !regexp.MustCompile(`"runs":[1-9]`).Match(text) {
			t.Errorf("%s: it never ran: %q", mode, text)
		}
	}
}

func TestBurn25DoesItsWork(t *testing.T) {
	v, err := Start(t.Context(), build(t, "burn25", Options{}), "20")
	if err != nil {
		t.Fatal(err)
	}
	text, err := v.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `"thread"`); n != 2 {
		t.Errorf("%d threads reported: %q", n, text)
	}
}

func TestVariants(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		kind string // what file's ELF header and sections say
		run  bool
	}{
		{"mixed", Options{Static: true}, "EXEC", true},
		{"mixed", Options{Musl: true}, "EXEC", true},
		{"deep", Options{Debug: true, FramePointers: true}, ".debug_info", false},
		{"throwing", Options{Static: true}, "EXEC", true},
		{"rusty", Options{FramePointers: true, Strip: true}, "DYN", false},
		{"gopher", Options{Strip: true}, "EXEC", true},
	}
	for _, tt := range tests {
		path := build(t, tt.name, tt.o)
		elf, err := exec.Command("readelf", "-hSW", path).Output()
		if err != nil || !bytes.Contains(elf, []byte(tt.kind)) {
			t.Errorf("%s %+v: not %s (%v)", tt.name, tt.o, tt.kind, err)
		}
		if bytes.Contains(elf, []byte(".symtab")) == tt.o.Strip {
			t.Errorf("%s %+v: symbols are wrong", tt.name, tt.o)
		}
		if tt.run {
			if v, err := Start(t.Context(), path, "0.05"); err != nil {
				t.Error(err)
			} else if text, err := v.Wait(); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		}
	}
}

var instruction = regexp.MustCompile(`(?m)^ +[0-9a-f]+:\s+(\S+) *(.*)$`)

// disassemble gives a function's instructions, mnemonic and operands.
func disassemble(t *testing.T, path, function string) [][]string {
	t.Helper()
	out, err := exec.Command("objdump", "--no-show-raw-insn", "--disassemble="+function, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	found := instruction.FindAllStringSubmatch(string(out), -1)
	if len(found) == 0 {
		t.Fatalf("%s has no function %s", filepath.Base(path), function)
	}
	return found
}

// to tells whether an instruction of that kind leads to the function.
func to(found [][]string, mnemonic, function string) bool {
	for _, f := range found {
		if f[1] == mnemonic && strings.Contains(f[2], "<"+function+">") {
			return true
		}
	}
	return false
}

// What the log calls a function is one, calls what its stack says, and burns
// without calling anything.
func TestFunctionsAreWhatTheyAreCalled(t *testing.T) {
	tests := []struct {
		victim string
		leaves []string
		calls  [][2]string
		jumps  [][2]string
	}{
		{"mixed", []string{"scan", "hash", "rare"}, [][2]string{{"run", "parse"}, {"parse", "hash"}, {"store", "hash"}}, nil},
		{"recursive", []string{"leaf", "combine"}, [][2]string{{"visit", "descend"}, {"descend", "visit"}, {"descend", "leaf"}, {"visit", "combine"}}, nil},
		{"tailcall", []string{"tail", "plain"}, [][2]string{{"run", "head"}, {"run", "plain"}}, [][2]string{{"head", "middle"}, {"middle", "tail"}}},
		{"deep", []string{"level_99"}, [][2]string{{"level_00", "level_01"}, {"level_42", "level_43"}, {"level_98", "level_99"}}, nil},
		{"threads50", []string{"accept_one", "lookup", "encode", "send_one"}, [][2]string{{"decode", "lookup"}}, nil},
		{"periodic10ms", []string{"first", "second"}, nil, nil},
		{"signals", []string{"plain", "nested", "on_signal"}, [][2]string{{"on_alternate", "nested"}}, nil},
		{"burn25", []string{"leaf"}, [][2]string{{"f01", "f02"}, {"f20", "f21"}, {"f21", "leaf"}, {"work", "f01"}}, nil},
		{"manymaps", []string{"island"}, nil, nil},
		{"forkstorm", []string{"flash", "steady"}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.victim, func(t *testing.T) {
			path := build(t, tt.victim, Options{})
			for _, leaf := range tt.leaves {
				for _, f := range disassemble(t, path, leaf) {
					if strings.HasPrefix(f[1], "call") {
						t.Errorf("%s calls %s", leaf, f[2])
					}
				}
			}
			for _, c := range tt.calls {
				if !to(disassemble(t, path, c[0]), "call", c[1]) {
					t.Errorf("%s does not call %s", c[0], c[1])
				}
			}
			for _, j := range tt.jumps {
				if found := disassemble(t, path, j[0]); !to(found, "jmp", j[1]) || to(found, "call", j[1]) {
					t.Errorf("%s does not jump to %s", j[0], j[1])
				}
			}
		})
	}
}
