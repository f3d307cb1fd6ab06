package languages

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/test/testwait"
)

// pythons lists interpreters: those of ATYS_PYTHONS, a list like PATH, else of
// pyenv, of the runtimes that .ci/runtimes installs, and of the system. By name.
func pythons(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	if list := os.Getenv("ATYS_PYTHONS"); list != "" {
		for _, path := range filepath.SplitList(list) {
			found[pythonName(path)] = path
		}
		return found
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{home + "/.pyenv/versions/3.*/bin/python3", home + "/.cache/atys/runtimes/cpython-3.*/bin/python3"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			found[pythonName(path)] = path
		}
	}
	if path := "/usr/bin/python3"; len(found) == 0 || isELF(path) {
		if _, err := os.Stat(path); err == nil {
			found["system"] = path
		}
	}
	if len(found) == 0 {
		t.Skip("no CPython: install one, or name some in ATYS_PYTHONS")
	}
	return versions(t, found, "python3.11")
}

// pythonName is the version in the name of the directory that it is installed in.
func pythonName(path string) string {
	return strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(path))), "cpython-")
}

// onePerMechanism keeps the newest of the interpreters that tell activations
// apart in the same way, where there are many.
func onePerMechanism(t *testing.T) map[string]string {
	t.Helper()
	all := pythons(t)
	if len(all) <= 5 {
		return all
	}
	kept := map[string]string{}
	for _, like := range []string{`^3\.[6-9]\.`, `^3\.10\.`, `^3\.11\.`, `^3\.12\.`, `^3\.1[3-9]\.`} {
		newest := ""
		for name := range all {
			if regexp.MustCompile(like).MatchString(name) && name > newest {
				newest = name
			}
		}
		if newest != "" {
			kept[newest] = all[newest]
		}
	}
	return kept
}

func isELF(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && strings.HasPrefix(string(data), "\x7fELF")
}

// python prepares to run a script of testdata.
func python(interpreter, script string, args ...string) *exec.Cmd {
	cmd := exec.Command(interpreter, append([]string{filepath.Join("testdata/python", script)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8")
	root := filepath.Dir(filepath.Dir(interpreter))
	if strings.Contains(interpreter, "/runtimes/cpython-") { // not installed where it was built for
		cmd.Env = append(cmd.Env, "PYTHONHOME="+root, "LD_LIBRARY_PATH="+root)
	}
	return cmd
}

// waitFor waits until a language's runtime is read in a process.
func waitFor(t *testing.T, u *unwind.Unwinder, pid int, language unwind.Language) {
	t.Helper()
	var err error
	testwait.Until(t, fmt.Sprintf("the runtime of process %d is read", pid), func() bool {
		_, err = u.Runtime(pid, language)
		return err == nil
	}, func() string { return err.Error() })
}

// What chains.py may be doing. Functions of the standard library are not told.
var pythonChains = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`<module>(;main)?`,
	`<module>;main;recursion(;Tree\.descend){0,10}`,
	`<module>;main;recursion(;Tree\.descend){10};burn`,
	`<module>;main;reduction(;reducer(;burn)?)?`,
	`<module>;main;generator(;numbers(;burn)?)?`,
	`<module>;main;delegation(;relay(;numbers(;burn)?)?)?`,
	`<module>;main;sorting(;sorting\.<locals>\.<lambda>(;burn)?)?`,
	`<module>;main;comprehension(;comprehension\.<locals>\.<listcomp>)?(;burn)?`,
	`<module>;main;expression(;\S+)*?(;replacement(;burn)?)?`,
	`<module>;main;parsing(;loads(;JSONDecoder\.\w+)*(;hook(;burn)?)?)?`,
	`<module>;main;callback(;compare(;burn)?)?`,
	`<module>;main;coroutine(;outer(;inner(;Pause\.__await__)?(;burn)?)?)?`,
	`<module>;main;instances(;Instance\.__init__(;burn)?)?`,
	`<module>;main;slots(;Instance\.__(init|eq)__(;burn)?)?`,
	`<module>;main;characters(;(naïve|関数|𐌰𐌱)(;burn)?)?`,
	`<module>;main;table(;long(;burn)?)?`,
	`Thread\._bootstrap(;Thread\._bootstrap_inner(;Thread\.run(;worker(;burn)?)?)?)?`,
}, "|") + `)$`)

// Chains that must be among those seen.
var pythonNeeded = []string{
	"<module>;main;recursion" + strings.Repeat(";Tree.descend", 10) + ";burn",
	"<module>;main;reduction;reducer;burn",
	"<module>;main;generator;numbers;burn",
	"<module>;main;delegation;relay;numbers;burn",
	"<module>;main;sorting;sorting.<locals>.<lambda>;burn",
	"<module>;main;callback;compare;burn",
	"<module>;main;coroutine;outer;inner;Pause.__await__;burn",
	"<module>;main;coroutine;outer;inner;burn",
	"<module>;main;instances;Instance.__init__;burn",
	"<module>;main;slots;Instance.__eq__;burn",
	"<module>;main;characters;naïve;burn",
	"<module>;main;characters;関数;burn",
	"<module>;main;characters;𐌰𐌱;burn",
	"<module>;main;table;long;burn",
	"Thread._bootstrap;Thread._bootstrap_inner;Thread.run;worker;burn",
}

// recordPythons runs a script under each CPython, records all at once, for so
// long each, and gives what was seen of each.
func recordPythons(t *testing.T, interpreters map[string]string, frequency float64, each time.Duration, script string, args ...string) map[string][]observed {
	t.Helper()
	byPID := map[int]string{}
	var pids []int
	for name, path := range interpreters {
		pid := launch(t, python(path, script, args...))
		byPID[pid] = name
		pids = append(pids, pid)
	}
	r := begin(t, frequency, pids...)
	for _, pid := range pids {
		waitFor(t, r.Unwinder(), pid, unwind.Python)
	}
	seen := map[string][]observed{}
	for _, o := range cutEnough(t, r, each*time.Duration(len(pids)), enoughOf(frequency, each), pids) {
		name := byPID[o.pid] // "": a child, maybe gone by now
		seen[name] = append(seen[name], o)
	}
	return seen
}

// TestPython records a program that calls through every mechanism there is.
func TestPython(t *testing.T) {
	needsBPF(t)
	interpreters := pythons(t)
	seen := recordPythons(t, interpreters, 999, 2*time.Second, "chains.py")
	source := strings.Split(readFile(t, "testdata/python/chains.py"), "\n")
	for name := range interpreters {
		t.Run(name, func(t *testing.T) {
			checkPythonChains(t, seen[name])
			checkPythonLines(t, seen[name], source)
		})
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// allowedWrong is how many samples in a thousand may be cut.
const allowedWrong = 5

// checkPythonChains asserts that what is seen is legal and whole.
func checkPythonChains(t *testing.T, stacks []observed) {
	t.Helper()
	var all, cut, illegal int64
	chains, shown := map[string]int64{}, 0
	for _, o := range stacks {
		all += o.samples
		chain := o.chain(profile.KindPython)
		chains[chain] += o.samples
		switch {
		case o.end.Truncated():
			cut += o.samples
			show(t, &shown, "cut: %q", o, o.end)
		case !pythonChains.MatchString(chain):
			illegal += o.samples
			show(t, &shown, "not legal: %s", o, chain)
		}
	}
	t.Logf("%d samples, %d cut, %d not legal", all, cut, illegal)
	if all < 100 {
		t.Fatalf("%d samples only", all)
	}
	if tooMany(illegal, all) {
		t.Errorf("%d of %d samples show calls that the program does not make", illegal, all)
	}
	if cut*1000 > all*allowedWrong {
		t.Errorf("%d of %d stacks are cut", cut, all)
	}
	for _, needed := range pythonNeeded {
		if chains[needed] == 0 {
			t.Errorf("never seen: %s", needed)
		}
	}
}

// show logs a stack, of which there may be many.
func show(t *testing.T, shown *int, format string, o observed, values ...any) {
	t.Helper()
	if *shown++; *shown > 5 {
		return
	}
	t.Logf(format, values...)
	var names []string
	for _, f := range o.frames {
		names = append(names, f.Function)
	}
	t.Logf("%d samples of %s", o.samples, strings.Join(names, ";"))
}

// longLine is where long calls burn: below its def line and 1,500 others.
const longLine = 1502

// checkPythonLines asserts that who calls burn stands in a line that does.
func checkPythonLines(t *testing.T, stacks []observed, source []string) {
	t.Helper()
	checked := 0
	for _, o := range stacks {
		frames := o.of(profile.KindPython)
		for i := 1; i < len(frames) && !o.end.Truncated(); i++ {
			caller := frames[i-1]
			if frames[i].Function != "burn" {
				continue
			}
			checked++
			switch {
			case caller.Function == "long":
				if caller.Line != longLine || caller.File != "long.py" {
					t.Errorf("long stands at %s:%d, not at line %d", caller.File, caller.Line, longLine)
				}
			case filepath.Base(caller.File) != "chains.py":
				t.Errorf("%s is said to be in %q", caller.Function, caller.File)
			case caller.Line < 1 || caller.Line > len(source) || !strings.Contains(source[caller.Line-1], "burn("):
				t.Errorf("%s calls burn from line %d, which does not", caller.Function, caller.Line)
			}
		}
	}
	if checked == 0 {
		t.Error("nobody was seen to call burn")
	}
}

// checkMost asserts that all samples show a chain, or the beginning of it.
func checkMost(t *testing.T, stacks []observed, want string) {
	t.Helper()
	var all, whole int64
	shown := 0
	for _, o := range stacks {
		chain := o.chain(profile.KindPython)
		all += o.samples
		switch {
		case o.end.Truncated():
			show(t, &shown, "cut: %q", o, o.end)
		case chain == want:
			whole += o.samples
		case !strings.HasPrefix(want, chain):
			t.Errorf("%d samples of %s", o.samples, chain)
		}
	}
	t.Logf("%d of %d samples are %.80s", whole, all, want)
	if all < 50 || whole*100 < all*90 {
		t.Errorf("%d of %d samples are %s", whole, all, want)
	}
}

// childChain allows names that are not qualified: until 3.10 they come from the
// source, which cannot be found through a process that is gone already.
var childChain = regexp.MustCompile(`^<module>;main;(\S+;)?(BaseProcess\.)?run;work;burn$`)

// TestPythonChildren asserts that children are read like the parent that forked
// them, from their first sample on.
func TestPythonChildren(t *testing.T) {
	needsBPF(t)
	interpreters := onePerMechanism(t)
	seen := recordPythons(t, interpreters, 999, 500*time.Millisecond, "children.py")
	for name, path := range interpreters {
		t.Run(name, func(t *testing.T) {
			library := filepath.Dir(filepath.Dir(path)) + "/lib/"
			var whole, burning int64
			shown := 0
			for _, o := range seen[""] {
				chain := o.chain(profile.KindPython)
				uses := func(f profile.Frame) bool { return strings.HasPrefix(f.File, library) }
				if !strings.HasSuffix(chain, "burn") || !slices.ContainsFunc(o.frames, uses) {
					continue
				}
				burning += o.samples
				if !o.end.Truncated() && childChain.MatchString(chain) {
					whole += o.samples
					continue
				}
				show(t, &shown, "not whole: %s", o, chain)
			}
			if burning < 50 || whole*1000 < burning*990 {
				t.Errorf("%d of %d samples of burn are whole", whole, burning)
			}
		})
	}
}

// TestPythonInner asserts that what a sub-interpreter runs is seen, and the frames
// of the interpreter that started it.
func TestPythonInner(t *testing.T) {
	needsBPF(t)
	interpreters := onePerMechanism(t)
	maps.DeleteFunc(interpreters, func(_, path string) bool {
		return python(path, "inner.py", "probe").Run() != nil // it has none before 3.7
	})
	if len(interpreters) == 0 {
		t.Skip("no CPython with sub-interpreters")
	}
	seen := recordPythons(t, interpreters, 999, 500*time.Millisecond, "inner.py")
	for name := range interpreters {
		t.Run(name, func(t *testing.T) { checkMost(t, seen[name], "<module>;outside;<module>;inside;burn") })
	}
}

// TestPythonDeep asserts that depth is counted right: native frames stand
// between Python's until 3.10, so that fewer of these find room.
func TestPythonDeep(t *testing.T) {
	needsBPF(t)
	interpreters := onePerMechanism(t)
	seen := recordPythons(t, interpreters, 999, 300*time.Millisecond, "deep.py", "150")
	for name := range interpreters {
		t.Run(name, func(t *testing.T) {
			checkMost(t, seen[name], "<module>"+strings.Repeat(";dive", 150)+";burn")
		})
	}
}

// TestPythonTooDeep asserts that of a stack that finds no room the leaf is kept,
// and that it says so.
func TestPythonTooDeep(t *testing.T) {
	needsBPF(t)
	for name, path := range onePerMechanism(t) {
		t.Run(name, func(t *testing.T) {
			// One at a time: each stack has 16 KB, and a window room for some 100.
			seen := recordPythons(t, map[string]string{name: path}, 49, 500*time.Millisecond, "deep.py", "2500")
			var all int64
			for _, o := range seen[name] {
				all += o.samples
				chain := o.chain(profile.KindPython)
				if o.end != profile.EndTooDeep || strings.Trim(strings.TrimSuffix(chain, "burn"), "dive;") != "" || len(o.frames) < 1000 {
					t.Errorf("%d samples of %d frames end as %q: %.100s", o.samples, len(o.frames), o.end, chain)
				}
			}
			if all < 5 {
				t.Errorf("%d samples", all)
			}
		})
	}
}

// TestPythonLateKey asserts that the thread state is found where other keys
// were taken before, so that it lies in another block.
func TestPythonLateKey(t *testing.T) {
	needsBPF(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc")
	}
	library := filepath.Join(t.TempDir(), "keys.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "testdata/python/keys.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("LD_PRELOAD", library)
	interpreters := onePerMechanism(t)
	seen := recordPythons(t, interpreters, 999, 300*time.Millisecond, "deep.py", "3")
	for name := range interpreters {
		t.Run(name, func(t *testing.T) { checkMost(t, seen[name], "<module>;dive;dive;dive;burn") })
	}
}
