package kernels

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Paths inside the machine that init and this package agree on.
const (
	InitPath   = "/init"
	ScriptPath = "/script.json"
)

// Applets are the commands that init itself answers to in the machine, each
// a link to it in /bin. A file of the same path takes the place of one.
func Applets() []string {
	return []string{"cat", "ls", "mkdir", "probe", "sleep", "spin", "true", "uname", "write"}
}

// writeImage packs the initramfs and returns its size.
func writeImage(to, initProgram string, files map[string]string, script Script) (int64, error) {
	f, err := os.Create(to)
	if err != nil {
		return 0, fmt.Errorf("create initramfs: %w", err)
	}
	size, err := packImage(f, initProgram, files, script)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("write initramfs: %w", err)
	}
	return size, nil
}

func packImage(w io.Writer, initProgram string, files map[string]string, script Script) (int64, error) {
	text, err := json.Marshal(script)
	if err != nil {
		return 0, err
	}
	a := newArchive(w)
	made := map[string]bool{}
	for _, dir := range []string{"bin", "dev", "etc", "home", "proc", "run", "sys", "tmp", "var"} {
		if err := addFolders(a, made, dir); err != nil {
			return 0, err
		}
	}
	// The kernel opens the console for init before anything is mounted.
	console := member{name: "dev/console", mode: modeChar | 0o600, major: 5, minor: 1}
	if err := a.add(console, nil); err != nil {
		return 0, err
	}
	if err := addBytes(a, ScriptPath, modeFile|0o644, text); err != nil {
		return 0, err
	}
	if err := addFile(a, InitPath, initProgram, files); err != nil {
		return 0, err
	}
	for _, name := range Applets() {
		if _, taken := files["/bin/"+name]; taken {
			continue
		}
		if err := addBytes(a, "/bin/"+name, modeLink|0o777, []byte(InitPath)); err != nil {
			return 0, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkPath(name); err != nil {
			return 0, err
		}
		if err := addFolders(a, made, path.Dir(name[1:])); err != nil {
			return 0, err
		}
		if err := addFile(a, name, files[name], files); err != nil {
			return 0, err
		}
	}
	return a.close()
}

func checkPath(name string) error {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || name == "/":
		return fmt.Errorf("path %q in the machine: want a clean absolute one", name)
	case name == InitPath || name == ScriptPath:
		return fmt.Errorf("path %q in the machine is taken by the machine itself", name)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("path %q in the machine has a NUL", name)
	}
	// These are covered by a mount before the first command runs.
	for _, covered := range []string{"/dev/", "/proc/", "/sys/", "/tmp/"} {
		if strings.HasPrefix(name, covered) {
			return fmt.Errorf("path %q in the machine would be hidden by the mount on %s", name, covered)
		}
	}
	return nil
}

// addFolders adds dir and its parents, each once.
func addFolders(a *archive, made map[string]bool, dir string) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := addFolders(a, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return a.add(member{name: dir, mode: modeDir | 0o755}, nil)
}

func addBytes(a *archive, name string, mode uint32, data []byte) error {
	return a.add(member{name: name[1:], mode: mode, size: int64(len(data))}, bytes.NewReader(data))
}

func addFile(a *archive, name, from string, files map[string]string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q is not a regular file", from)
	}
	if err := checkLoader(f, from, files); err != nil {
		return err
	}
	mode := modeFile | uint32(info.Mode().Perm())
	return a.add(member{name: name[1:], mode: mode, size: info.Size()}, f)
}

// checkLoader refuses a program whose loader is not in the machine: there it
// would fail with a "no such file" that names the program, not the loader.
func checkLoader(f *os.File, from string, files map[string]string) error {
	program, err := elf.NewFile(f)
	if err != nil {
		return nil // data, not a program
	}
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		text, err := io.ReadAll(p.Open())
		if err != nil {
			return fmt.Errorf("read the loader's name of %q: %w", from, err)
		}
		loader := strings.TrimRight(string(text), "\x00")
		if _, ok := files[loader]; !ok {
			return fmt.Errorf("%q needs the loader %q, which is not among the files: "+
				"link it statically (CGO_ENABLED=0, cc -static)", from, loader)
		}
	}
	return nil
}
