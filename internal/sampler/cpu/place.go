package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/proc"
)

// What a sample's interrupt costs whoever is interrupted, and what an event on
// a thread adds to each of its context switches; measured on a virtual machine.
const (
	interruptCost     = 14 * time.Microsecond
	switchCostAt99Hz  = 2400 * time.Nanosecond
	switchCostAt999Hz = 5800 * time.Nanosecond
)

// hotFrequency is from where on it matters whom the interrupts hit: below,
// bystanders pay under 0.7% of the CPU time they use.
const hotFrequency = 499

// maxThreadEvents bounds the file descriptors spent on one target.
const maxThreadEvents = 256

// demand is what is known when events are placed.
type demand struct {
	hz       float64
	others   float64 // CPUs that processes other than the targets keep busy
	switches float64 // context switches a second of the targets
	threads  int     // of the targets
	cgroup   string  // a cgroup2 directory that holds the targets and nothing else
}

// decision says where events go, and what that costs others.
type decision struct {
	placement  Placement
	cgroup     string
	bystanders float64 // of a core, paid by processes that are not sampled
	why        string
}

// place is pure: events go where those who are not sampled pay least, unless
// the targets would pay more for that than the others save.
func place(d demand) decision {
	onCPUs := d.hz * interruptCost.Seconds() * d.others
	perSwitch := switchCostAt99Hz
	if d.hz > 99 {
		slope := float64(switchCostAt999Hz-switchCostAt99Hz) / 900
		perSwitch += time.Duration(slope * min(d.hz-99, 900))
	}
	onThreads := d.switches * perSwitch.Seconds()
	switch {
	case d.hz < hotFrequency:
		return decision{PlaceCPUs, "", onCPUs, "each CPU is sampled: at this rate bystanders hardly notice"}
	case d.cgroup != "":
		return decision{PlaceCgroup, d.cgroup, 0, "the targets have a cgroup to themselves: only they are interrupted"}
	case d.threads > maxThreadEvents:
		return decision{PlaceCPUs, "", onCPUs, fmt.Sprintf("each CPU is sampled: %d threads are too many for an event each", d.threads)}
	case onThreads < onCPUs:
		return decision{PlaceThreads, "", 0, "each thread has its event: only the targets are interrupted"}
	}
	return decision{PlaceCPUs, "", onCPUs, "each CPU is sampled: events on threads would cost the targets more than the others save"}
}

// BudgetError refuses a standing task that would cost others too much.
type BudgetError struct {
	Cost, Budget float64 // of a core
	Hz           float64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("sampling at %v Hz would cost processes that are not sampled %.2f%% of a core, and the budget is %.2f%%: lower the frequency, or give the target a cgroup of its own",
		e.Hz, 100*e.Cost, 100*e.Budget)
}

// observe is how long the machine is watched before hot events are placed.
const observe = 50 * time.Millisecond

// placeEvents decides where this sampler's events go.
func (s *Sampler) placeEvents() (decision, error) {
	o := s.options
	switch {
	case o.Cgroup != "":
		return decision{placement: PlaceCgroup, cgroup: o.Cgroup, why: "the cgroup's threads are sampled wherever they run"}, nil
	case o.Spread != PlaceByCost:
		return decision{placement: o.Spread, why: "as asked"}, nil
	case o.All || !o.Event.Clock || o.Second != nil: // a second event is counted by CPU
		return decision{placement: PlaceCPUs, why: "each CPU is sampled"}, nil
	}
	d := demand{hz: s.frequency()}
	if d.hz >= hotFrequency {
		var err error
		if d, err = s.observe(d); err != nil {
			return decision{}, err
		}
	}
	chosen := place(d)
	if o.Budget > 0 && chosen.bystanders > o.Budget {
		return chosen, &BudgetError{Cost: chosen.bystanders, Budget: o.Budget, Hz: d.hz}
	}
	return chosen, nil
}

// observe watches who uses the CPUs for a moment.
func (s *Sampler) observe(d demand) (demand, error) {
	before := map[threadID]times{}
	if err := s.exact.snapshot(func(id threadID, t times) { before[id] = t }); err != nil {
		return d, err
	}
	began := time.Now()
	time.Sleep(observe)
	var others uint64
	var switches uint64
	err := s.exact.snapshot(func(id threadID, t times) {
		old := before[id]
		if s.Wanted(id.pid) {
			d.threads++
			switches += t.switches - old.switches
		} else if id.pid != os.Getpid() {
			others += t.runtime - old.runtime
		}
	})
	elapsed := time.Since(began).Seconds()
	d.others, d.switches = float64(others)/1e9/elapsed, float64(switches)/elapsed
	d.cgroup = ownCgroup(s.options.PIDs)
	return d, err
}

var cgroup2Roots = []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}

// ownCgroup finds a cgroup2 directory that holds exactly these processes; empty
// if there is none. The root holds whatever was never placed and does not count.
func ownCgroup(pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	groups, err := proc.FS{}.Cgroups(pids[0])
	if err != nil {
		return ""
	}
	at, ok := proc.V2(groups)
	if !ok || at == "/" {
		return ""
	}
	for _, root := range cgroup2Roots {
		dir := filepath.Join(root, at)
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue
		}
		list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return ""
		}
		for _, line := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(line); err != nil || !slices.Contains(pids, pid) {
				return ""
			}
		}
		return dir
	}
	return ""
}

// Placement tells where events were put, and what others pay, in words.
func (s *Sampler) Placement() (why string, bystanders float64) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.decision.why, s.events.decision.bystanders
}
