package lang

import (
	"errors"
	"io/fs"
	"slices"

	"atys.dev/atys/internal/proc"
)

// Target is one process that can be profiled.
type Target struct {
	PID      int
	Comm     string
	Service  Service
	Runtimes []Runtime // none if the process cannot be read
	Err      error     // why it cannot
}

// Missing says what a profile of the process will lack, and why.
func (t *Target) Missing() (reasons []string) {
	if t.Err != nil {
		reasons = append(reasons, t.Err.Error())
	}
	for _, r := range t.Runtimes {
		if r.Why != "" && !slices.Contains(reasons, r.Why) {
			reasons = append(reasons, r.Why)
		}
	}
	return reasons
}

// LeftOut counts the processes that have no code to profile.
type LeftOut struct{ KernelThreads, Zombies int }

// Targets looks at processes, in the order of their numbers. Those that end
// meanwhile are left out; those that cannot be read are not.
func (d *Detector) Targets(pids []int) (targets []Target, out LeftOut) {
	pids = slices.Clone(pids)
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		stat, err := d.FS.Check(pid)
		if err != nil {
			out.count(err)
			continue
		}
		t := Target{PID: pid, Comm: stat.Comm}
		t.Runtimes, t.Err = d.Detect(pid)
		if t.Err != nil && !errors.Is(t.Err, fs.ErrPermission) {
			if _, err := d.FS.Check(pid); err != nil {
				out.count(err)
				continue
			}
		}
		if t.Service, err = d.Service(pid, t.Runtimes); err != nil {
			out.count(err)
			continue
		}
		targets = append(targets, t)
	}
	return targets, out
}

func (o *LeftOut) count(err error) {
	switch {
	case errors.Is(err, proc.ErrKernelThread):
		o.KernelThreads++
	case errors.Is(err, proc.ErrZombie):
		o.Zombies++
	}
}
