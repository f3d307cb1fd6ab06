package languages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/test/testwait"
)

// phpAppending runs much in helpers that compiled code calls.
const phpAppending = `Shop\appending`

// What chains.php may be doing. Functions written in C may be innermost.
var phpChains = script{
	kind: profile.KindPHP,
	path: "php/chains.php",
	legal: []string{
		`{main}(;microtime)?`,
		`{main};Shop\\round`,
		`{main};Shop\\round(;Shop\\Tree::descend){1,11}`,
		`{main};Shop\\round(;Shop\\Tree::descend){11};Shop\\burn`,
		`{main};Shop\\round;Shop\\mapping(;array_map(;Shop\\{closure}(;Shop\\burn)?)?)?`,
		`{main};Shop\\round;Shop\\sorting(;usort(;Shop\\Tree::compare(;Shop\\burn)?)?)?`,
		`{main};Shop\\round;Shop\\matching(;preg_replace_callback(;Shop\\{closure}(;Shop\\burn)?)?)?`,
		`{main};Shop\\round;Shop\\generating(;Shop\\numbers(;Shop\\burn)?)?`,
		`{main};Shop\\round;Shop\\evaluating(;eval(;Shop\\burn)?)?`,
		`{main};Shop\\round;Shop\\including(;include\(included\.php\)(;Shop\\burn)?)?`,
		`{main};Shop\\round;Shop\\printing(;Shop\\Tree::__toString(;Shop\\burn)?)?`,
		`{main};Shop\\round;Shop\\missing(;Shop\\Tree::anything|;Shop\\Tree::__call(;Shop\\burn)?)?`,
		`{main};Shop\\round;Shop\\fibers(;Fiber::__construct)?`,
		`{main};Shop\\round;Shop\\fibers(;Fiber::(start|resume)(;Shop\\{closure}(;Shop\\burn|;Fiber::suspend)?)?)?`,
		`Shop\\{closure};Fiber::suspend`, // switched, but not yet off its stack
		`{main};Shop\\round;Shop\\anonymous(;class@anonymous::run(;Shop\\burn)?)?`,
		`{main};Shop\\round;Shop\\appending`,
	},
	needed: []string{
		`{main};Shop\round` + strings.Repeat(`;Shop\Tree::descend`, 11) + `;Shop\burn`,
		`{main};Shop\round;Shop\mapping;array_map;Shop\{closure};Shop\burn`,
		`{main};Shop\round;Shop\sorting;usort;Shop\Tree::compare;Shop\burn`,
		`{main};Shop\round;Shop\matching;preg_replace_callback;Shop\{closure};Shop\burn`,
		`{main};Shop\round;Shop\generating;Shop\numbers;Shop\burn`,
		`{main};Shop\round;Shop\evaluating;eval;Shop\burn`,
		`{main};Shop\round;Shop\including;include(included.php);Shop\burn`,
		`{main};Shop\round;Shop\printing;Shop\Tree::__toString;Shop\burn`,
		`{main};Shop\round;Shop\missing;Shop\Tree::__call;Shop\burn`,
		`{main};Shop\round;Shop\fibers;Fiber::start;Shop\{closure};Shop\burn`,
		`{main};Shop\round;Shop\fibers;Fiber::resume;Shop\{closure};Shop\burn`,
		`{main};Shop\round;Shop\anonymous;class@anonymous::run;Shop\burn`,
		`{main};Shop\round;` + phpAppending,
	},
	calls: map[string]string{
		"eval":                  "eval(",
		"include(included.php)": "include ",
		`Shop\{closure}`:        "yield", // callers are written in C
		`Shop\numbers`:          "foreach (numbers() as",
		`Shop\Tree::__toString`: `"$t"`,
		`Shop\Tree::__call`:     "anything",
		"Fiber::__construct":    "Fiber(",
		"class@anonymous::run":  "->run",
		"Fiber::suspend":        "suspend",
		`Shop\Tree::compare`:    "usort",
	},
}

// phpModes are how the same program is run: bytecode as it is, from opcache,
// and compiled.
var phpModes = map[string][]string{
	"interpreter":  {"-d", "opcache.enable_cli=0"},
	"opcache":      {"-d", "opcache.enable_cli=1"},
	"function JIT": {"-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=32M", "-d", "opcache.jit=function"},
	"tracing JIT":  {"-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=32M", "-d", "opcache.jit=tracing"},
}

// TestPHP records a program that calls through every mechanism there is.
func TestPHP(t *testing.T) {
	needsBPF(t)
	php := needs(t, "php")
	programs := map[string]*exec.Cmd{}
	for mode, flags := range phpModes {
		programs[mode] = exec.Command(php, append(flags, "testdata/php/chains.php")...)
	}
	seen := recordScripts(t, unwind.PHP, 1500*time.Millisecond, programs)
	for mode := range phpModes {
		t.Run(mode, func(t *testing.T) {
			phpChains.check(t, seen[mode])
			checkCompiled(t, mode, seen[mode])
		})
	}
}

// checkCompiled asserts that a mode with a compiler ran what that made, and that
// no line is told of a function that is in compiled code: that keeps where it is
// for calls of functions only, and this one calls none.
func checkCompiled(t *testing.T, mode string, stacks []observed) {
	t.Helper()
	var compiled, told int64
	for _, o := range stacks {
		frames := o.of(profile.KindJIT, profile.KindPHP)
		if len(o.of(profile.KindJIT)) > 0 {
			compiled += o.samples
		}
		if last := len(frames) - 1; last > 0 && frames[last].Kind == profile.KindJIT && frames[last-1].Function == phpAppending && frames[last-1].Line != 0 {
			told += o.samples
		}
	}
	if told > 0 {
		t.Errorf("%d samples of compiled %s have a line", told, phpAppending)
	}
	if strings.HasSuffix(mode, "JIT") && compiled < 20 {
		t.Errorf("%d samples with compiled code", compiled)
	}
}

// TestPHPServer records workers of php-fpm that serve requests: without
// opcache, each request compiles all functions anew and frees them.
func TestPHPServer(t *testing.T) {
	needsBPF(t)
	for _, mode := range []string{"interpreter", "tracing JIT"} {
		t.Run(mode, func(t *testing.T) {
			socket, workers := startFPM(t, phpModes[mode])
			r := begin(t, 999, workers...)
			for _, pid := range workers {
				waitFor(t, r.Unwinder(), pid, unwind.PHP)
			}
			stop := loadFPM(t, socket, len(workers))
			stacks := cut(t, r, 2*time.Second)
			stop()
			phpChains.check(t, inScript(stacks))
			checkCompiled(t, mode, stacks)
		})
	}
}

// inScript leaves out what a server does between requests, and as it compiles.
func inScript(stacks []observed) (in []observed) {
	for _, o := range stacks {
		executes := func(f profile.Frame) bool { return f.Kind == profile.KindPHP || f.Function == "execute_ex" }
		if o.end.Truncated() || slices.ContainsFunc(o.frames, executes) {
			in = append(in, o)
		}
	}
	return in
}

// startFPM starts php-fpm with two workers.
func startFPM(t *testing.T, flags []string) (socket string, workers []int) {
	t.Helper()
	dir := t.TempDir()
	socket = filepath.Join(dir, "fpm.sock")
	config := fmt.Sprintf("[global]\nerror_log = %s/log\n[www]\nlisten = %s\npm = static\npm.max_children = 2\n", dir, socket)
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"-F", "-R", "-y", filepath.Join(dir, "conf")}, flags...)
	for i := range flags {
		flags[i] = strings.Replace(flags[i], "enable_cli", "enable", 1)
	}
	cmd := exec.Command(needs(t, "php-fpm8.2"), flags...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it ends its workers too
		_ = cmd.Wait()
	})
	testwait.Until(t, "php-fpm answers", func() bool { return request(socket) == nil })
	children := readFile(t, fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	for _, child := range strings.Fields(children) {
		pid, err := strconv.Atoi(child)
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, pid)
	}
	if len(workers) != 2 {
		t.Fatalf("php-fpm has %d workers, log:\n%s", len(workers), readFile(t, filepath.Join(dir, "log")))
	}
	return socket, workers
}

// loadFPM keeps so many requests under way until it is stopped.
func loadFPM(t *testing.T, socket string, clients int) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := request(socket); err != nil {
					t.Errorf("request: %v", err)
					return
				}
			}
		})
	}
	return func() {
		close(done)
		running.Wait()
	}
}

// Types of FastCGI's records.
const (
	cgiBegin      = 1
	cgiParameters = 4
	cgiInput      = 5
)

// request has php-fpm run the script, over FastCGI: records of a type, the
// request's number, the length of what follows, and that.
func request(socket string) error {
	script, err := filepath.Abs("testdata/php/chains.php")
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	var out []byte
	send := func(kind byte, body []byte) {
		out = append(out, 1, kind, 0, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(len(body)))
		out = append(append(out, 0, 0), body...)
	}
	var parameters []byte
	for _, p := range [][2]string{{"SCRIPT_FILENAME", script}, {"REQUEST_METHOD", "GET"}} {
		parameters = append(append(append(parameters, byte(len(p[0])), byte(len(p[1]))), p[0]...), p[1]...)
	}
	send(cgiBegin, []byte{0, 1, 0, 0, 0, 0, 0, 0}) // as a responder; close afterwards
	send(cgiParameters, parameters)
	send(cgiParameters, nil)
	send(cgiInput, nil)
	if _, err := conn.Write(out); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !strings.Contains(string(answer), "done") {
		err = errors.New("no answer: " + strconv.Quote(string(answer[:min(len(answer), 300)])))
	}
	return err
}
