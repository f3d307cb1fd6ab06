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

// What an event on a thread adds to each of its context switches; measured on a
// virtual machine.
const (
	switchCostAt99Hz  = 2400 * time.Nanosecond
	switchCostAt999Hz = 5800 * time.Nanosecond
)

// hotFrequency is from where on it matters whom the interrupts hit: below,
// bystanders pay about 1% of the CPU time they use.
const hotFrequency = 499

// maxThreadEvents bounds the file descriptors spent on one target.
const maxThreadEvents = 256

// maxRare is how much of the targets' time may be of threads that run rarely: one
// that uses less than a period while it has an event of its own has no samples.
const maxRare = 0.03

// demand is what is known when events are placed.
type demand struct {
	hz        float64
	interrupt time.Duration // what one costs
	others    float64       // CPUs that processes other than the targets keep busy,
	switches  float64       // context switches a second of the targets
	threads   int           // of the targets
	rare      float64       // part of the targets' time that is of threads that used less than a period
	cgroup    string        // a cgroup2 directory that holds the targets and nothing else
}

// onCPUs is what others pay, of a core, where each CPU has an event.
func (d *demand) onCPUs() float64 { return d.hz * d.interrupt.Seconds() * d.others }

// onThreads is what the targets pay, of a core, where each of their threads has one.
func (d *demand) onThreads() float64 {
	perSwitch := switchCostAt99Hz
	if d.hz > 99 {
		slope := float64(switchCostAt999Hz-switchCostAt99Hz) / 900
		perSwitch += time.Duration(slope * min(d.hz-99, 900))
	}
	return d.switches * perSwitch.Seconds()
}

// affordable is the rate at which others pay no more than the budget, of a core;
// 0: at any.
func (d *demand) affordable(budget float64) float64 {
	if budget <= 0 || d.interrupt <= 0 || d.others <= 0 {
		return 0
	}
	return budget / (d.interrupt.Seconds() * d.others)
}

// decision says where events go, and what that costs others.
type decision struct {
	placement  Placement
	cgroup     string
	bystanders float64 // of a core, paid by processes that are not sampled
	why        string
}

// place is pure: where events would serve best, if the targets start no threads.
// They go where those who are not sampled pay least, unless the targets would pay
// more for that than the others save, or would not be sampled in full.
func place(d demand) decision {
	onCPUs := d.onCPUs()
	switch {
	case d.hz < hotFrequency:
		return decision{PlaceCPUs, "", onCPUs, "each CPU is sampled: at this rate bystanders hardly notice"}
	case d.cgroup != "":
		return decision{PlaceCgroup, d.cgroup, 0, "the targets have a cgroup to themselves: only they are interrupted"}
	case d.threads > maxThreadEvents:
		return decision{PlaceCPUs, "", onCPUs, fmt.Sprintf("each CPU is sampled: %d threads are too many for an event each", d.threads)}
	case d.rare > maxRare:
		return decision{PlaceCPUs, "", onCPUs, "each CPU is sampled: many of the targets' threads run too rarely for events of their own"}
	case d.onThreads() < onCPUs:
		return decision{PlaceThreads, "", 0, "each thread has its event: only the targets are interrupted"}
	}
	return decision{PlaceCPUs, "", onCPUs, "each CPU is sampled: events on threads would cost the targets more than the others save"}
}

// Why events are on CPUs that might be on threads.
const (
	untilCalm  = "each CPU is sampled, until it is known that the targets start no threads"
	afterBirth = "each CPU is sampled: the targets start threads, which might end before they had an event"
)

// BudgetError refuses a recording that would cost others too much at any rate.
type BudgetError struct {
	Cost, Budget float64 // of a core
	Hz           float64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("sampling at %v Hz would cost processes that are not sampled %.2f%% of a core, and the budget is %.2f%%: raise the budget, or give the target a cgroup of its own",
		e.Hz, 100*e.Cost, 100*e.Budget)
}

// movable tells whether a sampler may choose where its events are.
func (o *Options) movable() bool {
	return o.Cgroup == "" && o.Spread == PlaceByCost && !o.All && o.Event.Clock && o.Second == nil // a second event is counted by CPU
}

// placeEvents decides where this sampler's events begin.
func (s *Sampler) placeEvents() (placed, error) {
	o := s.options
	p := placed{decision: decision{placement: PlaceCPUs, why: "each CPU is sampled"}, seen: demand{hz: s.asked()}}
	switch {
	case o.Cgroup != "":
		p.decision = decision{placement: PlaceCgroup, cgroup: o.Cgroup, why: "the cgroup's threads are sampled wherever they run"}
		return p, nil
	case o.Spread != PlaceByCost:
		p.decision = decision{placement: o.Spread, why: "as asked"}
		return p, nil
	case !o.movable():
		return p, nil
	}
	if s.considered(p.seen.hz) {
		if err := s.firstLook(&p.seen); err != nil {
			return p, err
		}
	}
	if p.decision = place(p.seen); p.decision.placement == PlaceThreads { // if they stay calm: see mover
		p.decision = decision{PlaceCPUs, "", p.seen.onCPUs(), untilCalm}
	}
	return p.afford(o.Budget)
}

// considered tells whether it matters, at a rate, whom interrupts hit.
func (s *Sampler) considered(hz float64) bool { return hz >= hotFrequency || s.options.Budget > 0 }

// placed is where events are, why, and at which rate at most.
type placed struct {
	decision
	seen demand  // by what it was decided
	cap  float64 // Hz that the budget allows; 0: as many as are asked for
}

// afford lowers the rate until others pay no more than the budget, of a core,
// allows. Where the slowest rate is too dear it is taken, and that is the error.
func (p placed) afford(budget float64) (placed, error) {
	p.cap = 0
	if p.placement != PlaceCPUs {
		return p, nil
	}
	most := p.seen.affordable(budget)
	if most == 0 || most >= p.seen.hz {
		return p, nil
	}
	p.cap = max(most, MinFrequency)
	p.bystanders *= p.cap / p.seen.hz
	if most < MinFrequency {
		return p, &BudgetError{Cost: p.bystanders, Budget: budget, Hz: MinFrequency}
	}
	return p, nil
}

// rate is the base rate where one is asked for.
func (p *placed) rate(asked float64) float64 {
	if p.cap > 0 {
		return min(asked, p.cap)
	}
	return asked
}

// lowered says, in words, that the rate is less than was asked for; empty: it is not.
func (p *placed) lowered(asked float64) string {
	if p.cap == 0 || p.cap >= asked {
		return ""
	}
	return fmt.Sprintf("sampled at %.3g Hz instead of %.4g: more would cost processes that are not sampled more than the budget", p.cap, asked)
}

// firstLook watches the machine for a moment.
func (s *Sampler) firstLook(d *demand) error {
	before, err := s.sight()
	if err != nil {
		return err
	}
	time.Sleep(firstSight)
	after, err := s.sight()
	if err != nil {
		return err
	}
	*d = s.compare(before, after)
	d.rare = 0 // too short a look to say
	d.cgroup = ownCgroup(s.options.PIDs)
	return nil
}

// firstSight is how long the machine is watched before hot events are placed.
const firstSight = 50 * time.Millisecond

// sight is what all threads have used up to a moment.
type sight struct {
	at      time.Time
	threads map[threadID]times
}

// sight looks at all threads. Who calls it holds s.mu, or has not started yet.
func (s *Sampler) sight() (sight, error) {
	seen := sight{at: time.Now(), threads: map[threadID]times{}}
	err := s.exact.snapshot(func(id threadID, t times) { seen.threads[id] = t })
	return seen, err
}

// compare tells what the targets and others did between two looks.
func (s *Sampler) compare(before, after sight) demand {
	d := demand{hz: s.asked(), interrupt: interruptCost()}
	elapsed := after.at.Sub(before.at).Seconds()
	var others, mine, rare, switches float64
	for id, t := range after.threads {
		old := before.threads[id]
		if old.started != t.started {
			old = times{}
		}
		used := float64(t.runtime - old.runtime)
		switch {
		case t.target || s.Wanted(id.pid):
			d.threads++
			mine += used
			if used/1e9*d.hz < 1 {
				rare += used
			}
			switches += float64(t.switches - old.switches)
		case id.pid != os.Getpid():
			others += used
		}
	}
	d.others, d.switches = others/1e9/elapsed, switches/elapsed
	if mine > 0 {
		d.rare = rare / mine
	}
	return d
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

// Placement tells where events are now, and what others pay, in words.
func (s *Sampler) Placement() (why string, bystanders float64) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.say(), s.events.placed.bystanders
}

// say is where events are, and why, in words.
func (e *eventSet) say() string {
	if lowered := e.placed.lowered(e.asked); lowered != "" {
		return e.placed.why + "; " + lowered
	}
	return e.placed.why
}

// lowered says so of the window that ends now.
func (s *Sampler) lowered() string {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.placed.lowered(s.events.asked)
}
