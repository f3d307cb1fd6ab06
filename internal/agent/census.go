package agent

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// census knows the targets of this machine.
type census struct {
	*identities
	present map[string]*present // by labels
	told    string              // what targets said last
}

// present is a target that is there.
type present struct {
	labels profile.Labels
	pids   []int
}

func (p *present) key() string { return p.labels.String() }

// young is what is not looked at yet: most processes that live shorter are
// never needed, and there may be hundreds of them a second.
const young = time.Second

func newCensus(node string, labels profile.Labels) *census {
	return &census{identities: newIdentities(node, labels), present: map[string]*present{}}
}

// look lists what runs, and forgets what has not for long.
func (c *census) look() error {
	pids, err := c.fs.PIDs()
	if err != nil {
		return err
	}
	c.begin()
	slices.Sort(pids)
	clear(c.present)
	for _, pid := range pids {
		labels, ok := c.lasting(pid, young)
		if !ok {
			continue
		}
		key := labels.String()
		p := c.present[key]
		if p == nil {
			p = &present{labels: labels}
			c.present[key] = p
		}
		p.pids = append(p.pids, pid)
	}
	return nil
}

// choose gives the targets that are meant, and the processes of all others.
func (c *census) choose(means func(profile.Labels) bool) (meant []*present, others []int) {
	for _, p := range c.present {
		if means(p.labels) {
			meant = append(meant, p)
		} else {
			others = append(others, p.pids...)
		}
	}
	return meant, others
}

// processes lists those of targets.
func processes(of []*present) (pids []int) {
	for _, p := range of {
		pids = append(pids, p.pids...)
	}
	slices.Sort(pids)
	return pids
}

// targets lists the targets as they are reported, and tells whether they are
// others than the last time.
func (c *census) targets() (all []*atysv1.Target, changed bool) {
	told := ""
	for _, key := range slices.Sorted(maps.Keys(c.present)) {
		p := c.present[key]
		all = append(all, &atysv1.Target{Labels: p.labels, Processes: uint32(len(p.pids))})
		told += key + "\n"
	}
	changed, c.told = told != c.told, told
	return all, changed
}
