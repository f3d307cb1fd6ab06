package agent

import (
	"errors"
	"maps"
	"path/filepath"
	"time"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// identities knows what processes are. A process that ends is known for as long
// as its last window may need it.
type identities struct {
	fs       proc.FS
	detector *lang.Detector
	common   profile.Labels // of all that runs here: node, and what the machine is labelled
	known    map[int]*identity
	round    int
}

// identity is what a process is for as long as it is the same one.
type identity struct {
	started time.Duration // since boot; a number that comes again is another process
	labels  profile.Labels
	round   int // in which it was last seen to be there
	asked   time.Time
}

// keepUnasked is for how long a process is remembered that nobody asks for.
const keepUnasked = 2 * time.Minute

func newIdentities(node string, labels profile.Labels) *identities {
	common := profile.Labels{"node": node}
	maps.Copy(common, labels)
	return &identities{detector: &lang.Detector{}, common: common, known: map[int]*identity{}}
}

// machine is the target that stands for all that is no process's.
func (ids *identities) machine() profile.Labels { return maps.Clone(ids.common) }

// service begins the labels of a target.
func (ids *identities) service(name string) profile.Labels {
	labels := ids.machine()
	labels["service"] = name
	return labels
}

// begin has processes looked at again, and forgets those that nobody asks for.
func (ids *identities) begin() {
	ids.round++
	for pid, id := range ids.known {
		if time.Since(id.asked) > keepUnasked {
			delete(ids.known, pid)
		}
	}
}

// of names the targets of threads.
func (ids *identities) of(threads []profile.Thread) []profile.Labels {
	ids.begin()
	targets := make([]profile.Labels, len(threads))
	for i, t := range threads {
		targets[i] = ids.target(t.PID, t.Process)
	}
	return targets
}

// target names what a process was that has been sampled, whether it is still
// there or not.
func (ids *identities) target(pid int, process string) profile.Labels {
	id := ids.known[pid]
	if id != nil && id.round == ids.round {
		return id.labels
	}
	stat, err := ids.fs.Check(pid)
	switch {
	case errors.Is(err, proc.ErrKernelThread):
		return ids.service("kernel")
	case err != nil && id != nil: // it has ended: what is known of it holds
	case err != nil: // it ended before anybody looked
		return ids.service(process)
	case id == nil || id.started != stat.Started:
		id = ids.meet(pid, stat, process)
	}
	id.round, id.asked = ids.round, time.Now()
	return id.labels
}

// lasting names the target of a process that is there, and has been for so long.
func (ids *identities) lasting(pid int, age time.Duration) (profile.Labels, bool) {
	stat, err := ids.fs.Check(pid)
	if err != nil {
		return nil, false
	}
	id := ids.known[pid]
	if id == nil || id.started != stat.Started {
		boot, err := proc.BootTime()
		if err != nil || time.Since(boot.Add(stat.Started)) < age {
			return nil, false
		}
		id = ids.meet(pid, stat, stat.Comm)
	}
	id.round, id.asked = ids.round, time.Now()
	return id.labels, true
}

func (ids *identities) meet(pid int, stat proc.Stat, process string) *identity {
	id := &identity{started: stat.Started, labels: ids.look(pid, process)}
	ids.known[pid] = id
	return id
}

// look names the smallest lasting thing that a process belongs to: its
// container, its unit, else its program.
func (ids *identities) look(pid int, process string) profile.Labels {
	labels := ids.service(process)
	runtimes, _ := ids.detector.Detect(pid) // what cannot be read has none that we know
	service, err := ids.detector.Service(pid, runtimes)
	if err != nil {
		return labels
	}
	for name, value := range map[string]string{
		"service": service.Name, "instance": service.Instance, "container": service.Container, "unit": service.Unit, "k8s.pod.uid": service.PodUID,
	} {
		if value != "" {
			labels[name] = value
		}
	}
	if exe, err := ids.fs.Exe(pid); err == nil && service.Container == "" {
		labels["executable"] = filepath.Base(exe.Path)
	}
	for _, r := range runtimes {
		if r.Kind != lang.Native {
			labels["language"] = string(r.Kind)
			break
		}
	}
	return labels
}
