package proc

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Cgroup is one line of a cgroup file: where a process stands in one hierarchy.
type Cgroup struct {
	ID          int      // 0: cgroup v2
	Controllers []string // of v1; a name of its own is "name=systemd"
	Path        string   // as seen from the reader's cgroup namespace
}

// Cgroups returns where a process stands in each hierarchy.
func (f FS) Cgroups(pid int) (groups []Cgroup, err error) {
	err = f.readPID(pid, "cgroup", parsed(&groups, ParseCgroups))
	if err != nil {
		return nil, fmt.Errorf("read cgroups: %w", err)
	}
	return groups, nil
}

// maxHierarchies bounds the lines of a cgroup file: one per v1 controller,
// named ones, and v2.
const maxHierarchies = 256

// ParseCgroups parses a cgroup file: "id:controller,controller:path" per line.
func ParseCgroups(data []byte) (groups []Cgroup, err error) {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		id, rest, ok := strings.Cut(string(line), ":")
		controllers, at, ok2 := strings.Cut(rest, ":")
		n, err := strconv.Atoi(id)
		if !ok || !ok2 || err != nil || n < 0 || !strings.HasPrefix(at, "/") || len(groups) == maxHierarchies {
			return nil, fmt.Errorf("%w cgroup %q", errMalformed, clip(line))
		}
		g := Cgroup{ID: n, Path: at}
		if controllers != "" {
			g.Controllers = strings.Split(controllers, ",")
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// V2 returns the path in the v2 hierarchy.
func V2(groups []Cgroup) (at string, ok bool) {
	for _, g := range groups {
		if g.ID == 0 && len(g.Controllers) == 0 {
			return g.Path, true
		}
	}
	return "", false
}

// Workload is what a process belongs to, as far as its cgroups tell.
type Workload struct {
	Container string // its id
	Runtime   string // "docker", "containerd", "cri-o", "podman", ...; "" unknown
	PodUID    string // of Kubernetes
	Unit      string // of systemd, inside the container where there is one
	User      string // the uid whose systemd the unit is of; "" for the system's
}

// WorkloadOf reads the names that container runtimes and systemd give to
// cgroups. Where hierarchies differ, as with v1 and v2 side by side, the one
// that tells of a container wins, and then the one that tells of a unit.
func WorkloadOf(groups []Cgroup) Workload {
	best, rank := Workload{}, 0
	for _, g := range groups {
		w := workloadAt(g.Path)
		r := 0
		switch {
		case w.Container != "":
			r = 3
		case w.PodUID != "":
			r = 2
		case w.Unit != "":
			r = 1
		}
		if r > rank {
			best, rank = w, r
		}
	}
	return best
}

var (
	// containerID is the id itself, or ECS's task id with a number behind it.
	containerID = regexp.MustCompile(`^[0-9a-f]{64}$|^[0-9a-f]{32}-[0-9]{1,10}$`)
	// containerScope is what runtimes name a systemd scope: runtime-id.scope.
	containerScope = regexp.MustCompile(`^(?:([a-z][a-z-]*)-)?([0-9a-f]{64})(?:\.scope)?$`)
	podUID         = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}[_-][0-9a-f]{4}[_-][0-9a-f]{4}[_-][0-9a-f]{4}[_-][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
	userSlice      = regexp.MustCompile(`^user-([0-9]{1,10})\.slice$`)
)

// workloadAt reads one path from the root down; what is deeper wins.
func workloadAt(at string) Workload {
	var w Workload
	user, parent := "", ""
	for _, name := range elements(at) {
		switch {
		case podUID.MatchString(name):
			w.PodUID = strings.ReplaceAll(podUID.FindStringSubmatch(name)[1], "_", "-")
		case userSlice.MatchString(name):
			user = userSlice.FindStringSubmatch(name)[1]
		case container(name):
			w.enter(parent, name)
		case strings.HasPrefix(name, "lxc.payload."):
			w = Workload{Container: strings.TrimPrefix(name, "lxc.payload."), Runtime: "lxc", PodUID: w.PodUID}
		case parent == "lxc":
			w = Workload{Container: name, Runtime: "lxc", PodUID: w.PodUID}
		case unitSuffix(name) && !strings.HasPrefix(name, "user@"):
			w.Unit, w.User = unescapeUnit(name), user
		}
		parent = name
	}
	return w
}

// elements splits a path. A containerd that is told systemd's names but does
// not use systemd makes one element of three, slice:cri-containerd:id.
func elements(at string) (names []string) {
	for _, name := range strings.Split(path.Clean(at), "/") {
		if i := strings.LastIndexByte(name, ':'); i >= 0 && containerID.MatchString(name[i+1:]) {
			names = append(names, strings.Split(name, ":")...)
		} else if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// container reports whether an element names a container, rather than what
// watches it from outside ("libpod-conmon-ID.scope").
func container(name string) bool {
	if containerID.MatchString(name) {
		return true
	}
	m := containerScope.FindStringSubmatch(name)
	return m != nil && !strings.HasSuffix(m[1], "conmon")
}

// enter notes a container; a unit that was seen before is the one around it.
func (w *Workload) enter(parent, name string) {
	id, runtime := name, parent
	if m := containerScope.FindStringSubmatch(name); m != nil {
		id = m[2]
		if m[1] != "" {
			runtime = m[1]
		}
	} else {
		runtime = "ecs" // whose ids have a form of their own
	}
	switch {
	case runtime == "docker", runtime == "ecs":
	case runtime == "cri-containerd", runtime == "nerdctl":
		runtime = "containerd"
	case runtime == "crio":
		runtime = "cri-o"
	case runtime == "libpod", runtime == "libpod_parent":
		runtime = "podman"
	default:
		runtime = ""
	}
	w.Container, w.Runtime, w.Unit, w.User = id, runtime, "", ""
}

func unitSuffix(name string) bool {
	switch path.Ext(name) {
	case ".service", ".scope", ".socket", ".mount", ".swap":
		return true
	}
	return false
}

// unescapeUnit undoes systemd's \xNN.
func unescapeUnit(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' {
			if v, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
