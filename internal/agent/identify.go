package agent

import (
	"errors"
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
	node     string
	known    map[int]*identity
}

// identity is what a process is for as long as it is the same one.
type identity struct {
	started time.Duration // since boot; a number that comes again is another process
	labels  profile.Labels
	unseen  int // windows since it was last asked for
}

// keepUnseen is for how many windows a process is remembered that took no CPU time.
const keepUnseen = 6

func newIdentities(node string) *identities {
	return &identities{detector: &lang.Detector{}, node: node, known: map[int]*identity{}}
}

// machine is the target that stands for all that is no process's.
func (ids *identities) machine() profile.Labels { return profile.Labels{"node": ids.node} }

// of names the targets of threads.
func (ids *identities) of(threads []profile.Thread) []profile.Labels {
	for pid, id := range ids.known {
		if id.unseen++; id.unseen > keepUnseen {
			delete(ids.known, pid)
		}
	}
	targets := make([]profile.Labels, len(threads))
	for i, t := range threads {
		targets[i] = ids.target(t.PID, t.Process)
	}
	return targets
}

func (ids *identities) target(pid int, process string) profile.Labels {
	id := ids.known[pid]
	if id != nil && id.unseen == 0 {
		return id.labels
	}
	stat, err := ids.fs.Check(pid)
	switch {
	case errors.Is(err, proc.ErrKernelThread):
		return profile.Labels{"node": ids.node, "service": "kernel"}
	case err != nil && id != nil: // it has ended: what is known of it holds
	case err != nil: // it ended before anybody looked
		return profile.Labels{"node": ids.node, "service": process}
	case id == nil || id.started != stat.Started:
		id = &identity{started: stat.Started, labels: ids.look(pid, process)}
		ids.known[pid] = id
	}
	id.unseen = 0
	return id.labels
}

// look names the smallest lasting thing that a process belongs to: its
// container, its unit, else its program.
func (ids *identities) look(pid int, process string) profile.Labels {
	labels := profile.Labels{"node": ids.node, "service": process}
	runtimes, _ := ids.detector.Detect(pid) // what cannot be read has none that we know
	service, err := ids.detector.Service(pid, runtimes)
	if err != nil {
		return labels
	}
	for name, value := range map[string]string{
		"service": service.Name, "container": service.Container, "unit": service.Unit, "k8s.pod.uid": service.PodUID,
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
