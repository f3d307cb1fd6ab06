package external

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"

	"atys.dev/atys/internal/proc"
)

// advice says how each kernel is installed.
var advice = map[Kernel]string{
	Perf:          "install your distribution's linux-perf or linux-tools package",
	PySpy:         "pip install py-spy",
	AsyncProfiler: "unpack a release of async-profiler and put its bin folder into PATH",
}

// ErrNotInstalled says that a kernel's program, or a part of it, is missing.
var ErrNotInstalled = errors.New("not installed")

// errNoOther says that none is.
var errNoOther = errors.New("no other kernel is installed: install perf, py-spy (Python) or async-profiler (Java)")

// find finds a kernel's program.
func find(k Kernel, program string) (string, error) {
	found, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("kernel %s: %w: there is no %s in PATH (sudo may have a PATH of its own): %s, or use kernel bpf", k, ErrNotInstalled, program, advice[k])
	}
	return filepath.Abs(found)
}

// tool is a program that writes its recordings into a folder.
type tool struct {
	path    string
	options Options
	folder  string // of what it writes, ours alone
}

// findTool finds a kernel's program, and makes its folder.
func findTool(k Kernel, program string, o Options) (t tool, err error) {
	t.options = o
	if t.path, err = find(k, program); err != nil {
		return t, err
	}
	t.folder, err = os.MkdirTemp("", "atys-"+program+"-")
	return t, err
}

func (t *tool) overlaps() bool { return true }
func (t *tool) release() error { return os.RemoveAll(t.folder) }

// findLibrary finds what async-profiler puts into a JVM, beside its program.
func findLibrary(program string) (string, error) {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	folder := filepath.Dir(program)
	for _, at := range []string{"../lib", ".", "../lib/async-profiler", "../lib64"} {
		file := filepath.Join(folder, at, libraryName)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file, nil
		}
	}
	return "", fmt.Errorf("kernel async-profiler: %w as a whole: %s is not in ../lib of %s: unpack all of its release", ErrNotInstalled, libraryName, program)
}

var (
	pythonFile = regexp.MustCompile(`^(lib)?python[23]?(\.?\d+)*[a-z]*(\.so[.0-9]*)?$`)
	hotspot    = "libjvm.so"
)

// Choose picks the best kernel that is installed for a process, for --kernel
// auto where BPF cannot be used. A command that has not begun yet is known by
// its program. The reason of the choice is in words.
func Choose(fs proc.FS, pids []int, command []string, allowAttach bool) (k Kernel, why string, err error) {
	python, java := len(pids) == 1, true
	for _, pid := range pids {
		names, err := mapped(fs, pid)
		if err != nil {
			return "", "", err
		}
		if len(command) > 0 {
			names = willMap(command[0])
		}
		python = python && matches(names, pythonFile)
		java = java && names[hotspot] != ""
	}
	installed := func(program string) bool { _, err := exec.LookPath(program); return err == nil }
	hint := ""
	switch {
	case java && allowAttach && installed("asprof"):
		return AsyncProfiler, "it is Java", nil
	case python && installed("py-spy"):
		return PySpy, "it is Python", nil
	case java && !allowAttach:
		hint = "; with --allow-attach, async-profiler would name its Java code"
	case python:
		hint = "; py-spy, were it installed, would name its Python code"
	}
	if installed("perf") {
		return Perf, "of those installed it reads this program best" + hint, nil
	}
	return "", "", errNoOther
}

// willMap returns what a program will have mapped, as far as its name tells.
func willMap(program string) map[string]string {
	if found, err := exec.LookPath(program); err == nil {
		program = found
	}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	names := map[string]string{path.Base(program): program}
	if path.Base(program) == "java" {
		names[hotspot] = program
	}
	return names
}

// mapped returns the files a process has mapped, by base name.
func mapped(fs proc.FS, pid int) (map[string]string, error) {
	maps, err := fs.Maps(pid)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for i := range maps {
		if m := &maps[i]; m.HasFile() {
			names[path.Base(m.Path)] = m.Path
		}
	}
	return names, nil
}

func matches(names map[string]string, re *regexp.Regexp) bool {
	for name := range names {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}
