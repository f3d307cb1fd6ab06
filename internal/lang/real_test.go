package lang

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// start runs a program that says a line and then waits for its input to end.
func start(t *testing.T, cmd *exec.Cmd) (pid int, said string) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	said, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s said %q: %v", cmd, said, err)
	}
	return cmd.Process.Pid, strings.TrimSuffix(said, "\n")
}

// programs returns the files that patterns lead to, each once.
func programs(t *testing.T, patterns ...string) (found []string) {
	t.Helper()
	for _, pattern := range patterns {
		if path, err := exec.LookPath(pattern); err == nil {
			pattern = path
		}
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			real, err := filepath.EvalSymlinks(path)
			// A shim starts one of the others.
			if err == nil && !strings.Contains(real, "/shims/") && !slices.Contains(found, real) {
				found = append(found, real)
			}
		}
	}
	if len(found) == 0 {
		t.Skipf("none of %q is installed", patterns)
	}
	return found
}

func rowOf(kind Kind) *support {
	rows := supported()
	return &rows[slices.IndexFunc(rows, func(s support) bool { return s.kind == kind })]
}

// TestInterpreters compares with what each interpreter says of itself, in
// every version that is installed.
func TestInterpreters(t *testing.T) {
	t.Parallel()
	home, _ := os.UserHomeDir()
	tests := []struct {
		kind     Kind
		programs []string
		args     []string // says the version, then waits
	}{
		{Python, []string{"python3", "/usr/bin/python3", filepath.Join(home, ".pyenv/versions/*/bin/python")},
			[]string{"-c", `import platform, sys; sys.stdout.write(platform.python_version() + "\n"); sys.stdout.flush(); sys.stdin.read()`}},
		{Node, []string{"node", filepath.Join(home, ".cache/atys/runtimes/node-*/bin/node")}, []string{"-e", `console.log(process.version.slice(1) + " V8 " + process.versions.v8); process.stdin.resume()`}},
		{Perl, []string{"perl"}, []string{"-e", `$| = 1; printf("%vd\n", $^V); <STDIN>`}},
		{Ruby, []string{"ruby", "/usr/bin/ruby3*"}, []string{"-e", `puts RUBY_VERSION; STDOUT.flush; STDIN.read`}},
		{PHP, []string{"php", "/usr/bin/php8*"}, []string{"-r", `echo PHP_VERSION, "\n"; fgets(STDIN);`}},
		{LuaJIT, []string{"luajit"}, []string{"-e", `print((jit.version:gsub("LuaJIT ", ""))) io.stdout:flush() io.read()`}},
	}
	for _, test := range tests {
		t.Run(string(test.kind), func(t *testing.T) {
			var d Detector
			for _, program := range programs(t, test.programs...) {
				pid, said := start(t, exec.Command(program, test.args...))
				got, err := d.Detect(pid)
				if err != nil || len(got) != 1 || got[0].Kind != test.kind {
					t.Errorf("%s, which is %s: %+v, %v", program, said, got, err)
					continue
				}
				version, engine, _ := strings.Cut(said, " ")
				if got[0].Version != numbers(version) || !strings.HasPrefix(engine, got[0].Engine) {
					t.Errorf("%s: version %q, %q, want %q", program, got[0].Version, got[0].Engine, said)
				}
				if got[0].Libc == "" {
					t.Errorf("%s: which C library is not known", program)
				}
				// What distributions and their makers build is walked, if its version is.
				if why := rowOf(test.kind).refusesVersion(got[0]); got[0].Walked != (why == "" && test.kind != LuaJIT) {
					t.Errorf("%s: walked %v, %q", program, got[0].Walked, got[0].Why)
				}
			}
		})
	}
}

const javaSource = `public class Main { public static void main(String[] a) throws Exception {
	System.out.println(System.getProperty("java.vm.version") + "|" + System.getProperty("java.vm.vendor") + "|"
		+ ModuleLayer.boot().findModule("jdk.jfr").isPresent());
	System.in.read(); } }`

// TestJava compares with what each JVM says of itself.
func TestJava(t *testing.T) {
	t.Parallel()
	javas := programs(t, "java", "/usr/lib/jvm/*/bin/java")
	source := filepath.Join(t.TempDir(), "Main.java")
	if err := os.WriteFile(source, []byte(javaSource), 0o644); err != nil {
		t.Fatal(err)
	}
	var d Detector
	for _, java := range javas {
		pid, said := start(t, exec.Command(java, "-Xshare:auto", "-XX:TieredStopAtLevel=1", source))
		words := strings.Split(said, "|")
		got, err := d.Detect(pid)
		if err != nil || len(got) != 1 || got[0].Kind != HotSpot {
			t.Fatalf("%s: %+v, %v", java, got, err)
		}
		r := got[0]
		if r.Update != words[0] || r.Version != numbers(words[0]) || r.Vendor != words[1] || r.JFR != (words[2] == "true") {
			t.Errorf("%s: %+v, want %q", java, r, words)
		}
		s, err := d.Service(pid, got)
		if err != nil || s.Source == FromScript && s.Name != "Main.java" {
			t.Errorf("%s: %+v, %v", java, s, err)
		}
		maps, err := d.FS.Maps(pid)
		if err != nil {
			t.Fatal(err)
		}
		if p := d.jvmProperties(pid, maps); p[perfVendor] != words[1] || !strings.Contains(p[perfCommand], "Main") {
			t.Errorf("%s: performance data %q", java, p)
		}
	}
}

// TestGo detects the test itself.
func TestGo(t *testing.T) {
	got, err := new(Detector).Detect(os.Getpid())
	want := strings.TrimPrefix(runtime.Version(), "go")
	if err != nil || len(got) != 1 || got[0].Kind != Go || got[0].Version != numbers(want) || !got[0].Walked {
		t.Errorf("%+v, %v; want Go %s", got, err, want)
	}
}

// TestCompilers detects what compilers make.
func TestCompilers(t *testing.T) {
	t.Parallel()
	const c = "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); getchar(); return 0; }\n"
	tests := []struct {
		name, source, file string
		compiler           []string
		language, libc     string
	}{
		{"C", c, "x.c", []string{"gcc"}, "", "glibc 2."},
		{"C++", "#include <iostream>\nint main() { std::cout << \"ready\" << std::endl; std::cin.get(); }\n", "x.cc", []string{"g++"}, "C++", "glibc 2."},
		{"Rust", "fn main() { println!(\"ready\"); let _ = std::io::stdin().read_line(&mut String::new()); }\n", "x.rs", []string{"rustc"}, "Rust", "glibc 2."},
		{"musl", c, "x.c", []string{"musl-gcc"}, "", "musl"},
		{"static", c, "x.c", []string{"gcc", "-static"}, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			compiler, err := exec.LookPath(test.compiler[0])
			if err != nil {
				t.Skipf("%s is not installed", test.compiler[0])
			}
			dir := t.TempDir()
			source, program := filepath.Join(dir, test.file), filepath.Join(dir, "program")
			if err := os.WriteFile(source, []byte(test.source), 0o644); err != nil {
				t.Fatal(err)
			}
			args := append(test.compiler[1:], "-o", program, source)
			if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
				t.Skipf("%s does not work: %v\n%s", compiler, err, out)
			}
			pid, _ := start(t, exec.Command(program))
			got, err := new(Detector).Detect(pid)
			if err != nil || len(got) != 1 || got[0].Kind != Native || got[0].Vendor != test.language ||
				!strings.HasPrefix(got[0].Libc, test.libc) || !got[0].Walked {
				t.Errorf("%+v, %v", got, err)
			}
			if err := RequireGlibc(pid); errors.Is(err, ErrNever) != (test.libc == "musl") {
				t.Errorf("readers take it for: %v", err)
			}
		})
	}
}

// TestSeveral loads a JVM and a Python into one native program.
func TestSeveral(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	home, _ := os.UserHomeDir()
	libraries := []string{
		programs(t, "/usr/lib/jvm/*/lib/server/libjvm.so")[0],
		programs(t, "/usr/lib/x86_64-linux-gnu/libpython3.*.so.1.0", filepath.Join(home, ".pyenv/versions/3*/lib/libpython3.*.so.1.0"))[0],
	}
	const source = "#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char **a) { while (--n) if (!dlopen(a[n], RTLD_LAZY)) { puts(dlerror()); return 1; }" +
		" puts(\"ready\"); fflush(stdout); getchar(); return 0; }\n"
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command(gcc, "-x", "c", "-o", program, "-", "-ldl")
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pid, said := start(t, exec.Command(program, libraries...))
	if said != "ready" {
		t.Fatal(said)
	}
	got, err := new(Detector).Detect(pid)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, library := range libraries {
		if !slices.ContainsFunc(got, func(r Runtime) bool { return r.Path == library && r.Version != "" }) {
			t.Errorf("%s is not in %+v", library, got)
		}
	}
}

// TestOtherMountNamespace runs a Perl that is at its path only in its own
// namespace; in ours that path is a shell.
func TestOtherMountNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to unshare a mount namespace: make test-root")
	}
	perl := programs(t, "perl")[0]
	dir := t.TempDir()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "program"), shell, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation=private", "/bin/sh", "-c",
		`mount -t tmpfs none "$0" && cp "$1" "$0/copy" && touch "$0/program" && mount --bind "$0/copy" "$0/program" &&
		exec "$0/program" -e '$| = 1; printf("%vd\n", $^V); <STDIN>'`, dir, perl)
	cmd.Env = append(os.Environ(), otelService+"=shop")
	pid, said := start(t, cmd)
	var d Detector
	got, err := d.Detect(pid)
	if err != nil || len(got) != 1 || got[0].Kind != Perl || got[0].Version != said {
		t.Errorf("%+v, %v; want Perl %s", got, err, said)
	}
	if s, err := d.Service(pid, got); err != nil || s.Name != "shop" || s.Source != FromEnvironment {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestTargets lists this machine: the test is there, kernel threads are not,
// and a process that is not there is left out.
func TestTargets(t *testing.T) {
	pid, _ := start(t, exec.Command("sh", "-c", "echo ready; exec cat"))
	var d Detector
	targets, out := d.Targets([]int{pid, os.Getpid(), pid, 2, 1 << 30})
	if len(targets) != 2 || !slices.IsSortedFunc(targets, func(a, b Target) int { return a.PID - b.PID }) {
		t.Fatalf("%+v", targets)
	}
	for _, target := range targets {
		if target.Err != nil || len(target.Runtimes) == 0 || target.Service.Name == "" || target.Comm == "" {
			t.Errorf("%+v", target)
		}
	}
	if stat, err := d.FS.Stat(2); err == nil && stat.KernelThread() && out.KernelThreads != 1 {
		t.Errorf("%+v left out", out)
	}
}

// BenchmarkDetect looks at this process again and again: what a look costs
// once its files are known.
func BenchmarkDetect(b *testing.B) {
	var d Detector
	for b.Loop() {
		if _, err := d.Detect(os.Getpid()); err != nil {
			b.Fatal(err)
		}
	}
}
