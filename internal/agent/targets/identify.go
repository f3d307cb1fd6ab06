package targets

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
)

// identities knows which target each process belongs to. A process that has ended is
// remembered for as long as its last window may need it.
type identities struct {
	fs       proc.FS
	detector *lang.Detector
	common   profile.Labels // of all targets: the node, and the labels of the machine
	known    map[int]*identity
	keep     atomic.Int64 // for how many ns a process is remembered that nobody asks for
	round    int
	listed   time.Time // when the last list of what runs was begun
}

// identity is a process, as long as it runs the same program.
type identity struct {
	started  time.Duration // since boot; another time means that the number was reused
	program  uint64        // proc.Stat.Stack; another value means another program
	age      time.Duration // when its labels were read
	kernel   bool          // it is a kernel thread
	labels   profile.Labels
	together profile.Labels // the target that it is part of if it is a short-lived command
	gone     bool           // it has ended
	inode    uint64         // of its directory when it was checked; see proc.FS.Inode
	until    time.Time      // when to check again that it is the same, and no zombie
	round    int            // in which it was last seen
	asked    time.Time
}

const (
	keepUnasked = 2 * time.Minute // beyond the longest window
	trustInode  = time.Minute     // how long a process whose directory is there is assumed to be no zombie
)

// trust returns for how long a process of this age is assumed to be what it was. A program
// that has run for long is not replaced soon. A start script is: that is noticed within an
// eighth of its age. Checking all of them each time would cost four times what looking
// costs.
func trust(age time.Duration) time.Duration { return min(age/8, trustInode) }

// grown is the age at which a process has loaded its runtime and has its final name.
const grown = 10 * time.Second

// outgrown reports whether labels that were read at one age have to be read again.
func outgrown(then, now time.Duration) bool {
	return then < young && now >= young || then < grown && now >= grown
}

// errYoung means that a process has not run for long enough.
var errYoung = errors.New("young")

func newIdentities(node string, labels profile.Labels) *identities {
	common := profile.Labels{"node": node}
	maps.Copy(common, labels)
	ids := &identities{detector: &lang.Detector{}, common: common, known: map[int]*identity{}}
	ids.keep.Store(int64(keepUnasked))
	return ids
}

// machine returns the target of what belongs to no process.
func (ids *identities) machine() profile.Labels { return maps.Clone(ids.common) }

// service returns the first labels of a target.
func (ids *identities) service(name string) profile.Labels {
	labels := ids.machine()
	labels["service"] = wire.FitLabel(name)
	return labels
}

// begin starts a round, in which each process is checked once, and forgets those that
// nobody asked for.
func (ids *identities) begin() {
	ids.round++
	for pid, id := range ids.known {
		if time.Since(id.asked) > time.Duration(ids.keep.Load()) {
			delete(ids.known, pid)
		}
	}
}

// target returns the target of a process that was sampled, whether or not it still runs.
func (ids *identities) target(pid int, process string) profile.Labels {
	id := ids.known[pid]
	if id != nil && id.round == ids.round {
		return id.labels
	}
	seen, err := ids.see(pid, process, 0)
	switch {
	case err == nil:
		return seen.labels
	case id == nil: // it ended before it was looked at
		return ids.service(process)
	}
	id.round, id.asked, id.gone = ids.round, time.Now(), true
	return id.labels // it has ended: what is known of it still applies
}

// lasting returns the target of a process that runs, and has for this long.
func (ids *identities) lasting(pid int, age time.Duration) (profile.Labels, bool) {
	id, err := ids.see(pid, "", age)
	if err != nil || id.kernel {
		return nil, false
	}
	return id.labels, true
}

// see identifies a process that runs. Most are known: the inode tells, at a tenth of the
// cost of reading their stat.
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
	id.round, id.asked, id.gone = ids.round, now, false
	return id, nil
}

// check finds out whether a process is still the known one, and identifies it if not.
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
		id = &identity{started: stat.Started, program: stat.Stack, age: age, kernel: kernel, labels: ids.service("kernel"), together: ids.service(ShortLived)}
		if !kernel {
			id.labels, id.together, _ = ids.look(pid, cmp.Or(process, stat.Comm))
		}
		ids.known[pid] = id
	} else if stat.Stack != 0 && (stat.Stack != id.program || outgrown(id.age, age)) {
		id.kernel = kernel
		if labels, together, ok := ids.look(pid, stat.Comm); ok { // else it has ended meanwhile
			id.labels, id.together, id.program, id.age = labels, together, stat.Stack, age
		}
	}
	id.until = time.Now().Add(trust(age))
	return id, nil
}

// look labels a process by the smallest lasting thing that it belongs to: its container,
// its unit, else its program. Of one that has ended only the name is known. together is the
// target that it is part of if it is a short-lived command.
func (ids *identities) look(pid int, process string) (labels, together profile.Labels, ok bool) {
	labels = ids.service(process)
	runtimes, _ := ids.detector.Detect(pid) // what cannot be read has no known runtime
	service, err := ids.detector.Service(pid, runtimes)
	if err != nil {
		return labels, ids.service(ShortLived), false
	}
	set(labels, map[string]string{
		"service": service.Name, "instance": service.Instance, "container": service.Container, "unit": service.Unit, "k8s.pod.uid": service.PodUID,
	})
	if exe, err := ids.fs.Exe(pid); err == nil && service.Container == "" {
		labels["executable"] = wire.FitLabel(filepath.Base(exe.Path))
	}
	for _, r := range runtimes {
		if r.Kind != lang.Native {
			labels["language"] = string(r.Kind)
			break
		}
	}
	return labels, ids.ownerOf(service), true
}
