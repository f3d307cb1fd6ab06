package lang

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"atys.dev/atys/internal/binfile"
)

// support says which versions of a runtime atys' own unwinder walks.
type support struct {
	kind     Kind
	name     string   // for people
	from, to [2]int   // first and last series: {3, 6} to {3, 14}; zero: any
	ready    bool     // its frames are read; else only the native ones are
	tested   []string // the series that tests have walked: "11", "3.1"; nil: all that are supported
	glibc    bool     // only where glibc keeps what threads have
	lacks    string   // what is missing though it is walked
	never    string   // why they cannot be
}

// supported is the one place where a language is turned on.
func supported() []support {
	return []support{
		{kind: Python, name: "Python", from: [2]int{3, 6}, to: [2]int{3, 14}, ready: true, glibc: true},
		{kind: HotSpot, name: "Java", from: [2]int{8, 0}, to: [2]int{25, 99}, tested: []string{"11", "17", "21", "25"}, ready: true},
		{kind: Node, name: "JavaScript", from: [2]int{18, 0}, to: [2]int{26, 99}, tested: []string{"18", "20", "22", "24", "26"}, ready: true},
		{kind: Ruby, name: "Ruby", from: [2]int{3, 1}, to: [2]int{3, 1}, ready: true, glibc: true},
		{kind: PHP, name: "PHP", from: [2]int{8, 2}, to: [2]int{8, 2}, ready: true},
		{kind: Perl, name: "Perl", from: [2]int{5, 36}, to: [2]int{5, 36}, ready: true, glibc: true},
		{kind: DotNet, name: ".NET", from: [2]int{3, 0}, to: [2]int{3, 1}, tested: []string{"3.1"}, ready: true,
			lacks: "methods of .NET are named with --allow-attach alone"},
		{kind: BEAM, name: "Erlang", from: [2]int{25, 0}, to: [2]int{25, 99}, ready: true,
			lacks: "stacks are cut where Erlang called C code, and tell no lines"},
		{kind: Deno, name: "JavaScript of Deno"},
		{kind: Bun, name: "JavaScript", never: "Bun's JavaScriptCore is not supported: native frames only, stacks are cut at its compiled code"},
		{kind: OpenJ9, name: "Java", never: "OpenJ9 is not supported, only HotSpot is: native frames only, stacks are cut at compiled Java"},
		{kind: NativeImage, name: "Java", never: "a GraalVM native image is walked as far as it carries unwinding tables; its names are those of its symbols"},
		{kind: LuaJIT, name: "Lua", never: "LuaJIT is not supported: its traces leave no way to walk them, stacks are cut there"},
		{kind: Mono, name: "C#", never: "Mono is not supported: its code leaves no way to walk it, stacks are cut there"},
		{kind: Go, name: "Go", ready: true},
		{kind: Native, name: "native code", ready: true},
	}
}

// Support says whether atys' own unwinder walks a runtime's frames, and if
// not, why.
func Support(r Runtime) (walked bool, why string) {
	for _, s := range supported() {
		if s.kind == r.Kind {
			return s.check(r)
		}
	}
	return false, "not supported: native frames only"
}

// Told is the runtime of a kind in a file, as Detect tells it; an error where
// Support says that it is not walked. Readers of languages begin with it, so
// that they refuse what is said to be refused, and nothing else but what only
// they can see. at is what a process calls the file.
func Told(f *binfile.File, at string, kind Kind) (Runtime, error) {
	for _, r := range newImage(f, at, false, nil).facts().runtimes {
		if r.Kind != kind {
			continue
		}
		if walked, why := Support(r); !walked {
			return r, errors.New(why)
		}
		return r, nil
	}
	return Runtime{}, fmt.Errorf("it is no %s that is known", kind)
}

func (s *support) check(r Runtime) (walked bool, why string) {
	if r.Kind == DotNet && r.Feature == "NativeAOT" {
		return true, "" // compiled ahead
	}
	if s.never != "" {
		return false, s.never
	}
	if r.Kind == Python && r.Vendor == "PyPy" {
		return false, "PyPy is not supported, only CPython is: native frames only, stacks are cut at its compiled code"
	}
	if why := cmp.Or(s.refusesVersion(r), s.refusesBuild(r)); why != "" {
		return false, why + ": native frames only"
	}
	if !s.ready {
		return false, "names of " + s.name + " are not read yet; native frames are"
	}
	return true, strings.Join(slices.DeleteFunc([]string{s.untested(r), s.lacks}, func(why string) bool { return why == "" }), "; ")
}

func (s *support) refusesVersion(r Runtime) string {
	switch {
	case s.from == [2]int{}:
	case r.Version == "":
		return s.name + " of unknown version"
	case !s.covers(r.Version):
		return fmt.Sprintf("%s %s is not supported (%s is)", s.name, r.Version, s.span())
	}
	return ""
}

// refusesBuild tells of builds that keep what walks need elsewhere than others
// of their version, or not at all.
func (s *support) refusesBuild(r Runtime) string {
	switch {
	case s.glibc && r.Libc == "musl":
		return s.name + " on musl is not supported"
	case r.Kind == Python && r.Feature == "free-threaded":
		return "free-threaded builds of Python are not supported"
	case r.Kind == PHP && slices.Contains(strings.Fields(r.Feature), "ZTS"):
		return "PHP built for threads (ZTS) is not supported"
	case r.Kind == Perl && r.Feature != "ithreads":
		return "Perl built without threads (ithreads) is not supported"
	case s.ready && r.Lacks != "":
		return s.name + " is not read, " + r.Lacks
	}
	return ""
}

func (s *support) untested(r Runtime) string {
	major, minor := series(r.Version)
	if s.tested == nil || slices.Contains(s.tested, strconv.Itoa(major)) || slices.Contains(s.tested, fmt.Sprintf("%d.%d", major, minor)) {
		return ""
	}
	return fmt.Sprintf("%s %s is walked by what it tells of itself, but untested", s.name, r.Version)
}

func (s *support) covers(version string) bool {
	major, minor := series(version)
	before := major < s.from[0] || major == s.from[0] && minor < s.from[1]
	return !before && !after(major, minor, s.to)
}

func after(major, minor int, last [2]int) bool {
	return major > last[0] || major == last[0] && minor > last[1]
}

// span writes the versions that are covered: "3.6 to 3.14", "8 to 25".
func (s *support) span() string {
	write := func(v [2]int) string {
		if s.to[1] == 99 {
			return strconv.Itoa(v[0])
		}
		return fmt.Sprintf("%d.%d", v[0], v[1])
	}
	if first, last := write(s.from), write(s.to); first != last {
		return first + " to " + last
	}
	return write(s.from)
}

// Series gives the first two numbers of its version, 0 for what is not known.
func (r Runtime) Series() (major, minor int) { return series(r.Version) }

// series gives the first two numbers of a version, 0 for what is not there.
func series(version string) (major, minor int) {
	parts := strings.SplitN(version, ".", 3)
	major, _ = strconv.Atoi(parts[0])
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	return major, minor
}
