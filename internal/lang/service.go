package lang

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"atys.dev/atys/internal/proc"
)

// Service is what the processes of one program are called together.
type Service struct {
	Name     string
	Source   Source
	Instance string // service.instance.id in OTEL_RESOURCE_ATTRIBUTES; mostly nobody says
	proc.Workload
}

// Source says where a service's name comes from.
type Source string

// The sources of names, the first that has one wins.
const (
	FromEnvironment Source = "environment" // OTEL_SERVICE_NAME, else service.name in OTEL_RESOURCE_ATTRIBUTES
	FromPod         Source = "pod"         // its UID
	FromContainer   Source = "container"   // its id
	FromUnit        Source = "unit"
	FromJar         Source = "jar"
	FromMainClass   Source = "main class"
	FromScript      Source = "script"
	FromExecutable  Source = "executable"
)

// Variables that OpenTelemetry's SDKs are configured with.
const (
	otelService    = "OTEL_SERVICE_NAME"
	otelAttributes = "OTEL_RESOURCE_ATTRIBUTES"
)

// evidence is what a service's name is told by.
type evidence struct {
	environ  map[string]string
	workload proc.Workload
	args     []string
	command  string // of a JVM, as it tells itself
	comm     string
	exe      string
	kinds    []Kind
}

// Service names a process, given its runtimes. Sources that cannot be read
// are passed over; the error is about a process that is gone or has no code.
func (d *Detector) Service(pid int, runtimes []Runtime) (Service, error) {
	stat, err := d.FS.Check(pid)
	if err != nil {
		return Service{}, fmt.Errorf("name the service: %w", err)
	}
	e := evidence{comm: stat.Comm}
	for _, r := range runtimes {
		e.kinds = append(e.kinds, r.Kind)
	}
	// What another user's process keeps from us leaves its zero.
	e.environ, _ = d.FS.Environ(pid, otelService, otelAttributes)
	groups, _ := d.FS.Cgroups(pid)
	e.workload = proc.WorkloadOf(groups)
	e.args, _ = d.FS.Cmdline(pid)
	if exe, err := d.FS.Exe(pid); err == nil {
		e.exe = exe.Path
	}
	if e.runs(HotSpot) {
		if maps, err := d.FS.Maps(pid); err == nil {
			e.command = d.jvmProperties(pid, maps)[perfCommand]
		}
	}
	return e.service(), nil
}

func (e *evidence) service() Service {
	s := Service{Workload: e.workload, Instance: attribute(e.environ[otelAttributes], "service.instance.id")}
	take := func(source Source, name string) bool {
		if s.Name == "" && name != "" {
			s.Name, s.Source = name, source
		}
		return s.Name != ""
	}
	_ = take(FromEnvironment, e.environ[otelService]) ||
		take(FromEnvironment, attribute(e.environ[otelAttributes], "service.name")) ||
		take(FromPod, e.workload.PodUID) ||
		take(FromContainer, e.workload.Container) ||
		take(FromUnit, serviceUnit(e.workload.Unit))
	if s.Name == "" {
		name, source := e.program()
		take(source, name)
	}
	return s
}

// attribute finds a key in "key=value,key=value", whose values are
// percent-encoded. What does not decode counts as it stands.
func attribute(list, key string) string {
	for _, pair := range strings.Split(list, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || strings.TrimSpace(name) != key {
			continue
		}
		value = strings.TrimSpace(value)
		if decoded, err := url.PathUnescape(value); err == nil {
			return decoded
		}
		return value
	}
	return ""
}

// serviceUnit is a unit that stands for one program. Scopes are made for
// whatever is started in a session, and are not.
func serviceUnit(unit string) string {
	name, ok := strings.CutSuffix(unit, ".service")
	if !ok || strings.HasPrefix(name, "user@") {
		return ""
	}
	return name
}

func (e *evidence) runs(kinds ...Kind) bool {
	for _, have := range e.kinds {
		for _, kind := range kinds {
			if have == kind {
				return true
			}
		}
	}
	return false
}

// program names what is run by the command line, as far as the runtime's own
// options can be told from those of the program.
func (e *evidence) program() (string, Source) {
	args := e.args[min(1, len(e.args)):]
	switch {
	case e.runs(HotSpot, OpenJ9):
		if name, source := javaProgram(args); name != "" {
			return name, source
		}
		if word, _, _ := strings.Cut(e.command, " "); word != "" {
			if jar, ok := strings.CutSuffix(path.Base(word), ".jar"); ok {
				return jar, FromJar
			}
			return word, FromMainClass
		}
	case e.runs(DotNet):
		for _, arg := range args {
			if name, ok := strings.CutSuffix(path.Base(arg), ".dll"); ok {
				return name, FromScript
			}
		}
	default:
		if name := script(args, e.interpreter()); name != "" {
			return name, FromScript
		}
	}
	return e.executable(), FromExecutable
}

// executable is what the program's file is called. Of one that lies in memory,
// or was started by a descriptor, neither it nor the command's name says
// anything; what it calls itself may.
func (e *evidence) executable() string {
	names := []string{e.comm}
	if e.exe != "" {
		names = []string{path.Base(e.exe), e.comm}
	}
	if len(e.args) > 0 {
		names = append(names, path.Base(e.args[0]))
	}
	for _, name := range names {
		if name != "" && !strings.HasPrefix(name, "memfd:") && strings.Trim(name, "0123456789") != "" {
			return name
		}
	}
	return names[0]
}

// javaProgram reads the arguments of java: options, then the main class, or
// -jar FILE, or -m MODULE/CLASS.
func javaProgram(args []string) (string, Source) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		name, value, inline := strings.Cut(arg, "=")
		switch {
		case arg == "-jar":
			return strings.TrimSuffix(path.Base(cmp.Or(next, "?")), ".jar"), FromJar
		case arg == "-m", arg == "--module":
			return mainClass(next), FromMainClass
		case name == "--module" && inline:
			return mainClass(value), FromMainClass
		case javaOptionsWithValue(arg):
			i++
		case strings.HasPrefix(arg, "-"), strings.HasPrefix(arg, "@"), arg == "":
		case strings.HasSuffix(arg, ".java"):
			return path.Base(arg), FromScript
		default:
			return arg, FromMainClass
		}
	}
	return "", ""
}

// mainClass takes the class of MODULE/CLASS, or the module.
func mainClass(name string) string {
	if _, class, ok := strings.Cut(name, "/"); ok {
		return class
	}
	return name
}

// javaOptionsWithValue are the options whose value is the next argument.
func javaOptionsWithValue(arg string) bool {
	switch arg {
	case "-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path",
		"--add-modules", "--limit-modules", "--add-reads", "--add-exports", "--add-opens", "--patch-module",
		"--enable-native-access", "--source", "-d", "--describe-module":
		return true
	}
	return false
}

// interpreter says which options of an interpreter take the next argument as
// their value, and after which there is no script.
type interpreter struct {
	valued []string
	code   []string // the program is an argument
	module string   // the program is a module of that name
	joined string   // letters whose value is what follows them in one argument; "": options of a letter are not joined
}

func (e *evidence) interpreter() *interpreter {
	switch {
	case e.runs(Python):
		return &interpreter{valued: []string{"-W", "-X", "--check-hash-based-pycs"}, code: []string{"-c"}, module: "-m", joined: "WX"}
	case e.runs(Node):
		return &interpreter{valued: []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file", "--title"},
			code: []string{"-e", "--eval", "-p", "--print", "-pe"}}
	case e.runs(Deno, Bun):
		return &interpreter{}
	case e.runs(Ruby):
		return &interpreter{valued: []string{"-I", "-r", "-C", "-E"}, code: []string{"-e"}, joined: "IrCEKTWFix0"}
	case e.runs(PHP):
		return &interpreter{valued: []string{"-c", "-d", "-z"}, code: []string{"-r", "-B", "-R"}, module: "-f"}
	case e.runs(Perl):
		return &interpreter{valued: []string{"-I"}, code: []string{"-e", "-E"}, joined: "IMmFixDC0"}
	case e.runs(LuaJIT), e.runs(Mono):
		return &interpreter{valued: []string{"-l", "-j"}, code: []string{"-e"}}
	}
	switch path.Base(e.exe) {
	case "sh", "bash", "dash", "zsh", "ksh":
		return &interpreter{valued: []string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}, code: []string{"-c", "-s", "-i"}, joined: "oO"}
	}
	return nil
}

// script finds the program an interpreter was given; "" if it has none of its
// own, or no interpreter is known. One that it reads from a descriptor, as of
// bash <(...), has no name but the descriptor's number.
func script(args []string, in *interpreter) string {
	name := argument(args, in)
	if name == "" || strings.HasPrefix(name, "/dev/") || descriptor.MatchString(name) {
		return ""
	}
	return path.Base(name)
}

// descriptor is the path of a file that a process has open.
var descriptor = regexp.MustCompile(`^/proc/(?:self|thread-self|[0-9]+)/(?:task/[0-9]+/)?fd/[0-9]+$`)

// argument is what script names by the last part of its path.
func argument(args []string, in *interpreter) string {
	if in == nil {
		return ""
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == in.module && in.module != "":
			if i+1 < len(args) {
				return args[i+1]
			}
			return ""
		case contains(in.code, arg), arg == "-", arg == "":
			return ""
		case arg == "--":
		case in.joined != "" && len(arg) > 2 && arg[0] == '-' && arg[1] != '-':
			name, last := in.take(arg[1:])
			switch {
			case name != "":
				return name
			case last == in.module && in.module != "" && i+1 < len(args):
				return args[i+1]
			case contains(in.code, last), last == in.module && in.module != "":
				return ""
			case contains(in.valued, last):
				i++
			}
		case contains(in.valued, arg):
			i++
		case arg == "run" && len(in.code) == 0: // of deno and bun
		case !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "+"):
			return arg
		}
	}
	return ""
}

// take reads options of a letter that were joined: -Bc is -B and -c. It gives
// the module if that is among them, else the option that what follows belongs
// to, if it is one.
func (in *interpreter) take(letters string) (module, last string) {
	for i, letter := range letters {
		option, rest := "-"+string(letter), letters[i+len(string(letter)):]
		switch {
		case option == in.module && rest != "":
			return rest, ""
		case option == in.module, contains(in.code, option):
			return "", option
		case strings.ContainsRune(in.joined, letter):
			if rest != "" {
				option = ""
			}
			return "", option
		}
	}
	return "", ""
}

func contains(list []string, arg string) bool {
	for _, one := range list {
		if one == arg {
			return true
		}
	}
	return false
}
