package languages

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// nodes lists Nodes by version: those of ATYS_NODES, a list like PATH, else the
// one in PATH and those that .ci/runtimes installs.
func nodes(t *testing.T) map[string]string {
	t.Helper()
	var candidates []string
	if list := os.Getenv("ATYS_NODES"); list != "" {
		candidates = filepath.SplitList(list)
	} else {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		candidates, _ = filepath.Glob(home + "/.cache/atys/runtimes/node-*/bin/node")
		if path, err := exec.LookPath("node"); err == nil {
			candidates = append(candidates, path)
		}
	}
	found := map[string]string{}
	for _, path := range candidates {
		version, err := exec.Command(path, "--version").Output()
		if name := strings.TrimSpace(string(version)); err == nil && found[name] == "" {
			found[name] = path
		}
	}
	if len(found) == 0 {
		t.Skip("no Node: install one, run .ci/runtimes, or name some in ATYS_NODES")
	}
	return versions(t, found, "node")
}

// nodeModes are ways in which V8 runs functions, and from which Node on it has them.
var nodeModes = []struct {
	name  string
	since string
	flags []string
}{
	{"default", "v18", nil},
	{"interpreted", "v18", []string{"--no-opt", "--no-sparkplug", "--max-lazy"}},
	{"baseline", "v18", []string{"--always-sparkplug", "--no-opt"}},
	{"maglev", "v24", []string{"--maglev", "--no-turbofan"}},
}

// eachNode runs a test on each Node, in each mode that it has.
func eachNode(t *testing.T, run func(t *testing.T, node, mode string, flags []string)) {
	needsBPF(t)
	for version, node := range nodes(t) {
		for _, mode := range nodeModes {
			if version < mode.since {
				continue
			}
			flags := mode.flags
			if mode.name != "default" && mode.name != "maglev" && version >= "v24" {
				flags = append(flags[:len(flags):len(flags)], "--no-maglev")
			}
			t.Run(version+"/"+mode.name, func(t *testing.T) { run(t, node, mode.name, flags) })
		}
	}
}

// seenNode records a program.
func seenNode(t *testing.T, length time.Duration, node string, args ...string) []observed {
	t.Helper()
	pid := launch(t, exec.Command(node, args...))
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.V8)
	return cut(t, r, length)
}

const nodeChainsFile = "testdata/node/chains.js"

// nodeChains is what chains.js may be doing; functions of Node are not told.
// Optimised code calls V8's allocator without telling a position: such a call
// seems to be where the one before it is, so that what is inlined in awaiting
// may seem to run before it waits.
var nodeChains = regexp.MustCompile(`^(?:\(anonymous\) )?(?:` + strings.Join([]string{
	`main`,
	`main recursing( descend){0,30}`,
	`main recursing( descend){31}( burn)?`,
	`main mapping( each( burn)?)?`,
	`main sorting( compare( burn)?)?`,
	`main reviving( revive( burn)?)?`,
	`main replacing( replace( burn)?)?`,
	`main generating( generate( burn)?)?`,
	`(main )?awaiting( burn)?`,
	`main classes( Square( Shape( burn)?)?)?`,
	`main classes( area){1,2}`,
	`main classes( area area burn)?`,
	`main classes( compute| get side)( burn)?`,
	`main closing( closure( burn)?)?`,
	`main proxying( trap( burn)?)?`,
	`main binding( bindable( burn)?)?`,
	`main throwing( raise){0,10}`,
	`main throwing( raise){11}( burn)?`,
	`main throwing burn`,
	`main spreading( many( burn)?| bindable( burn)?)?`,
	`main assembling( \[wasm function\]){0,2}`,
	`main assembling( \[wasm function\]){1,2} imported( burn)?`,
}, "|") + `)$`)

// scriptLines tells the first and last line of each function of a script: one
// that begins with its name, up to the next brace as far left.
func scriptLines(t *testing.T, path string) map[string][2]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`^( *)(?:async |static )*(?:class |[a-z]+: )?(?:function\*? )?((?:get )?\w+)(?:\([^)]*\))?(?: extends \w+)? \{$`)
	lines := map[string][2]int{}
	all := strings.Split(string(text), "\n")
	for i, line := range all {
		m := begins.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for j := i; j < len(all); j++ {
			if strings.HasPrefix(all[j], m[1]+"}") {
				if known, ok := lines[m[2]]; ok { // of several classes
					lines[m[2]] = [2]int{known[0], j + 1}
				} else {
					lines[m[2]] = [2]int{i + 1, j + 1}
				}
				break
			}
		}
	}
	return lines
}

// judgeNode compares what was seen of chains.js with what can be.
func judgeNode(t *testing.T, stacks []observed) (inlined int64, seen map[string]int64) {
	t.Helper()
	path, err := filepath.Abs(nodeChainsFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := scriptLines(t, path)
	var all, whole, wrong, unlined int64
	seen = map[string]int64{}
	for _, o := range stacks {
		var chain []string
		var leaf profile.Frame
		for _, f := range o.of(profile.KindV8) {
			if f.File != path && f.Function != "[wasm function]" {
				continue
			}
			chain, leaf = append(chain, f.Function), f
			if f.Inlined {
				inlined += o.samples
			}
			if f.Function == "(anonymous)" {
				continue // the script itself
			}
			if within := lines[f.Function]; f.Line != 0 && (f.Line < within[0] || f.Line > within[1]) {
				t.Errorf("%s is in lines %v, but shown in line %d", f.Function, within, f.Line)
			}
			if within := lines[f.Function]; f.StartLine != 0 && (f.StartLine < within[0] || f.StartLine > within[1]) {
				t.Errorf("%s is in lines %v, but shown to begin in line %d", f.Function, within, f.StartLine)
			}
		}
		if !o.inJavaScript() {
			continue
		}
		all += o.samples
		if o.end == profile.EndComplete {
			whole += o.samples
		} else {
			t.Logf("%d samples end with %v: %v", o.samples, o.end, o.chain(profile.KindNative, profile.KindJIT, profile.KindV8))
		}
		if len(chain) == 0 {
			continue // of Node itself
		}
		if leaf.Line == 0 && leaf.File != "" {
			unlined += o.samples
		}
		if o.end == profile.EndComplete && !nodeChains.MatchString(strings.Join(chain, " ")) {
			wrong += o.samples
			t.Logf("%d samples of an illegal chain:%s", o.samples, o.told())
		}
		for _, name := range chain {
			seen[name] += o.samples
		}
	}
	t.Logf("%d samples in JavaScript: %d whole, %d wrong, %d whose leaf has no line; %d of inlined calls", all, whole, wrong, unlined, inlined)
	switch {
	case all < 200:
		t.Errorf("only %d samples in JavaScript", all)
	case tooMany(wrong, all):
		t.Errorf("%d of %d samples show calls that cannot be", wrong, all)
	case whole*1000 < all*985:
		t.Errorf("%d of %d samples are whole", whole, all)
	case unlined*100 > all*8: // 18 keeps no lines of some functions that wait
		t.Errorf("%d of %d samples have a leaf without a line", unlined, all)
	}
	return inlined, seen
}

// told lists a stack's functions but those that are only native.
func (o observed) told() (text string) {
	for _, f := range o.of(profile.KindV8, profile.KindJIT, profile.KindNative) {
		text += fmt.Sprintf("\n\t%s %s:%d", f.Function, filepath.Base(f.File), f.Line)
		if f.Inlined {
			text += " inlined"
		}
	}
	return text
}

// inJavaScript tells whether a thread was inside functions of JavaScript: V8
// enters them by a builtin of its own.
func (o observed) inJavaScript() bool {
	for _, f := range o.frames {
		if f.Kind == profile.KindJIT || strings.HasPrefix(f.Function, "Builtins_JS") && strings.HasSuffix(f.Function, "Entry") {
			return true
		}
	}
	return len(o.of(profile.KindV8)) > 0
}

func TestNodeChains(t *testing.T) {
	eachNode(t, func(t *testing.T, node, mode string, flags []string) {
		inlined, seen := judgeNode(t, seenNode(t, 3*time.Second, node, append(flags, nodeChainsFile)...))
		for _, name := range []string{"burn", "descend", "each", "compare", "revive", "replace", "generate", "awaiting", "area", "closure", "trap", "bindable", "raise", "many", "imported", "[wasm function]"} {
			if seen[name] == 0 && seen["main"] > 1000 {
				t.Errorf("%s was not seen", name)
			}
		}
		if mode == "default" && inlined == 0 {
			t.Error("no inlined call was seen")
		}
		if mode == "interpreted" && inlined > 0 {
			t.Errorf("%d samples of calls that are inlined, where nothing is compiled", inlined)
		}
	})
}

func TestNodeWorkers(t *testing.T) {
	needsBPF(t)
	for version, node := range nodes(t) {
		t.Run(version, func(t *testing.T) {
			stacks := seenNode(t, 3*time.Second, node, nodeChainsFile, "2")
			judgeNode(t, stacks)
			threads := map[int]bool{}
			for _, o := range stacks {
				if o.inJavaScript() {
					threads[o.tid] = true
				}
			}
			if len(threads) != 3 {
				t.Errorf("functions of JavaScript were seen on %d threads, not 3", len(threads))
			}
		})
	}
}

// TestNodeServer has a server answer requests: nearly all that it does in
// JavaScript is in functions of Node itself.
func TestNodeServer(t *testing.T) {
	needsBPF(t)
	for version, node := range nodes(t) {
		t.Run(version, func(t *testing.T) {
			cmd := exec.Command(node, "testdata/node/server.js")
			pid := launchServer(t, cmd)
			r := begin(t, 997, pid.pid)
			waitFor(t, r.Unwinder(), pid.pid, unwind.V8)
			stop := pid.load(t)
			stacks := cut(t, r, 3*time.Second)
			stop()
			var all, good, handled int64
			for _, o := range stacks {
				if !o.inJavaScript() {
					continue
				}
				all += o.samples
				named := len(o.of(profile.KindV8)) > 0
				for _, f := range o.of(profile.KindV8) {
					named = named && !strings.HasPrefix(f.Function, "[v8")
				}
				if o.end == profile.EndComplete && named {
					good += o.samples
				} else {
					t.Logf("%d samples end with %v: %v", o.samples, o.end, o.chain(profile.KindNative, profile.KindJIT, profile.KindV8))
				}
				if strings.Contains(o.chain(profile.KindV8), "emit;answer") || strings.Contains(o.chain(profile.KindV8), ";answer") {
					handled += o.samples
				}
			}
			t.Logf("%d samples in JavaScript, %d whole and named, %d in the server's own function", all, good, handled)
			if all < 200 || handled == 0 || good*1000 < all*985 {
				t.Errorf("%d of %d samples are whole and named, %d show the server's own function", good, all, handled)
			}
		})
	}
}

// server is a program that listens where it says.
type server struct {
	pid int
	url string
}

// launchServer starts a program that prints the port it listens on.
func launchServer(t *testing.T, cmd *exec.Cmd) server {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s tells no port: %v", cmd.Path, err)
	}
	return server{cmd.Process.Pid, fmt.Sprintf("http://127.0.0.1:%s/", strings.TrimSpace(line))}
}

// load keeps a server busy until stop is called.
func (s server) load(t *testing.T) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var clients sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				answer, err := client.Get(s.url)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
	return func() {
		close(done)
		clients.Wait()
		client.CloseIdleConnections()
	}
}
