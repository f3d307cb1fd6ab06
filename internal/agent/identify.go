package agent

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"time"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
)

// identities knows what processes are. A process that ends is known for as long
// as its last window may need it.
type identities struct {
	fs       proc.FS
	detector *lang.Detector
	common   profile.Labels // of all that runs here: node, and what the machine is labelled
	known    map[int]*identity
	keep     time.Duration // for so long a process is remembered that nobody asks for
	round    int
}

// identity is what a process is for as long as it is the same one, of the same
// program.
type identity struct {
	started time.Duration // since boot; a number that comes again is another process
	program uint64        // proc.Stat.Stack; another one is that of another program
	age     time.Duration // when its labels were read
	kernel  bool          // a thread of it
	labels  profile.Labels
	inode   uint64    // of its directory when it was checked; see proc.FS.Inode
	until   time.Time // then it is checked whether it is the same, and no zombie
	round   int       // in which it was last seen to be there
	asked   time.Time
}

const (
	keepUnasked = 2 * time.Minute // beyond the longest window
	trustInode  = time.Minute     // for so long a process is no zombie if its directory is there
)

// trust is for how long a process of an age is what it was. One that has run for
// long as one program does not become another one soon, and a start script
// does: that is seen within an eighth of the time it took. To check all each time
// would cost four times what it costs to see them, for as long as they live.
func trust(age time.Duration) time.Duration { return min(age/8, trustInode) }

// grown is how old a process is once it has loaded what tells its language, and
// is called what it stays to be called.
const grown = 10 * time.Second

// outgrown tells whether labels that were read at one age are to be read again.
func outgrown(then, now time.Duration) bool {
	return then < young && now >= young || then < grown && now >= grown
}

// errYoung is a process that has not been there for long.
var errYoung = errors.New("young")

func newIdentities(node string, labels profile.Labels) *identities {
	common := profile.Labels{"node": node}
	maps.Copy(common, labels)
	return &identities{detector: &lang.Detector{}, common: common, known: map[int]*identity{}, keep: keepUnasked}
}

// machine is the target that stands for all that is no process's.
func (ids *identities) machine() profile.Labels { return maps.Clone(ids.common) }

// service begins the labels of a target.
func (ids *identities) service(name string) profile.Labels {
	labels := ids.machine()
	labels["service"] = wire.FitLabel(name)
	return labels
}

// begin has processes looked at again, and forgets those that nobody asks for.
func (ids *identities) begin() {
	ids.round++
	for pid, id := range ids.known {
		if time.Since(id.asked) > ids.keep {
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
	seen, err := ids.see(pid, process, 0)
	switch {
	case err == nil:
		return seen.labels
	case id == nil: // it ended before anybody looked
		return ids.service(process)
	}
	id.round, id.asked = ids.round, time.Now()
	return id.labels // it has ended: what is known of it holds
}

// lasting names the target of a process that is there, and has been for so long.
func (ids *identities) lasting(pid int, age time.Duration) (profile.Labels, bool) {
	id, err := ids.see(pid, "", age)
	if err != nil || id.kernel {
		return nil, false
	}
	return id.labels, true
}

// see finds what a process is that is there. Most have been seen before, which
// the inode tells for a tenth of what reading their stat takes.
func (ids *identities) see(pid int, process string, age time.Duration) (*identity, error) {
	inode, err := ids.fs.Inode(pid)
	if err != nil {
		return nil, err
	}
	id, now := ids.known[pid], time.Now()
	if id == nil || id.inode != inode || now.After(id.until) {
		if id, err = ids.check(pid, process, age); err != nil {
			return nil, err
		}
		id.inode = inode
	}
	id.round, id.asked = ids.round, now
	return id, nil
}

// check finds whether a process is still the one that is known, and meets it if
// it is not. It is called process, or by what it is called now.
func (ids *identities) check(pid int, process string, least time.Duration) (*identity, error) {
	stat, err := ids.fs.Check(pid)
	kernel := errors.Is(err, proc.ErrKernelThread)
	if err != nil && !kernel {
		return nil, err
	}
	age := wire.SinceBoot() - stat.Started
	id := ids.known[pid]
	if id == nil || id.started != stat.Started {
		if age < least {
			return nil, errYoung
		}
		id = &identity{started: stat.Started, program: stat.Stack, age: age, kernel: kernel, labels: ids.service("kernel")}
		if !kernel {
			id.labels, _ = ids.look(pid, cmp.Or(process, stat.Comm))
		}
		ids.known[pid] = id
	} else if stat.Stack != 0 && (stat.Stack != id.program || outgrown(id.age, age)) {
		id.kernel = kernel
		if labels, ok := ids.look(pid, stat.Comm); ok { // else it has ended meanwhile
			id.labels, id.program, id.age = labels, stat.Stack, age
		}
	}
	id.until = time.Now().Add(trust(age))
	return id, nil
}

// look names the smallest lasting thing that a process belongs to: its
// container, its unit, else its program. Of one that has ended it knows no more
// than what it was called.
func (ids *identities) look(pid int, process string) (labels profile.Labels, ok bool) {
	labels = ids.service(process)
	runtimes, _ := ids.detector.Detect(pid) // what cannot be read has none that we know
	service, err := ids.detector.Service(pid, runtimes)
	if err != nil {
		return labels, false
	}
	for name, value := range map[string]string{
		"service": service.Name, "instance": service.Instance, "container": service.Container, "unit": service.Unit, "k8s.pod.uid": service.PodUID,
	} {
		if value != "" {
			labels[name] = wire.FitLabel(value)
		}
	}
	if exe, err := ids.fs.Exe(pid); err == nil && service.Container == "" {
		labels["executable"] = wire.FitLabel(filepath.Base(exe.Path))
	}
	for _, r := range runtimes {
		if r.Kind != lang.Native {
			labels["language"] = string(r.Kind)
			break
		}
	}
	return labels, true
}
