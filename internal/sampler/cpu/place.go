package cpu

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/sampler/table"
)

// What an event on a thread adds to each context switch of the thread, measured on a
// virtual machine.
const (
	switchCostAt99Hz  = 2400 * time.Nanosecond
	switchCostAt999Hz = 5800 * time.Nanosecond
)

// hotFrequency is the rate from which it matters whom the interrupts hit. Below it,
// bystanders pay about 1% of the CPU time they use.
const hotFrequency = 499

// maxThreadEvents bounds the file descriptors spent on one target.
const maxThreadEvents = 256

// maxRare is the largest part of the targets' time that may belong to threads that run
// rarely. A thread that uses less than a period while it has an event of its own gets no
// samples.
const maxRare = 0.03

// demand is what a placement is decided on.
type demand struct {
	hz        float64
	interrupt time.Duration // cost of one interrupt
	others    float64       // CPUs that processes other than the targets keep busy
	switches  float64       // context switches of the targets, per second
	threads   int           // number of the targets' threads
	rare      float64       // part of the targets' time that belongs to threads that used less than a period
	cgroup    string        // cgroup2 directory that holds the targets and nothing else; empty: none
}

// onCPUs returns what others pay, as a part of a core, if each CPU has an event.
func (d *demand) onCPUs() float64 { return d.hz * d.interrupt.Seconds() * d.others }

// onThreads returns what the targets pay, as a part of a core, if each of their threads
// has an event.
func (d *demand) onThreads() float64 {
	perSwitch := switchCostAt99Hz
	if d.hz > 99 {
		slope := float64(switchCostAt999Hz-switchCostAt99Hz) / 900
		perSwitch += time.Duration(slope * min(d.hz-99, 900))
	}
	return d.switches * perSwitch.Seconds()
}

// affordable returns the highest rate at which others pay no more than the budget, a
// part of a core. 0: any rate.
func (d *demand) affordable(budget float64) float64 {
	if budget <= 0 || d.interrupt <= 0 || d.others <= 0 {
		return 0
	}
	return budget / (d.interrupt.Seconds() * d.others)
}

// decision says where events go and what that costs others.
type decision struct {
	placement  Placement
	cgroup     string
	bystanders float64 // part of a core that processes that are not sampled pay
	why        string
}

// place decides where events belong, assuming that the targets start no threads. It is
// pure. Events go where processes that are not sampled pay least, unless that costs the
// targets more than it saves the others, or leaves part of the targets unsampled.
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

// Reasons why events are on CPUs although they could be on threads.
const (
	untilCalm  = "each CPU is sampled, until it is known that the targets start no threads"
	afterBirth = "each CPU is sampled: the targets start threads, which might end before they had an event"
)

// BudgetError reports that a recording costs others too much even at the slowest rate.
type BudgetError struct {
	Cost, Budget float64 // parts of a core
	Hz           float64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("sampling at %v Hz would cost processes that are not sampled %.2f%% of a core, and the budget is %.2f%%: raise the budget, or give the target a cgroup of its own",
		e.Hz, 100*e.Cost, 100*e.Budget)
}

// movable reports whether the sampler may choose where its events are.
func (o *Options) movable() bool {
	return o.Cgroup == "" && o.Spread == PlaceByCost && !o.All && o.Event.Clock && o.Second == nil // a second event is counted per CPU
}

// placer watches who uses the CPUs, and decides where the events are. The state of its
// decisions is with the events, and guarded by their lock.
type placer struct {
	options *Options
	log     *slog.Logger
	table   *table.Table
	events  *eventSet
}

// first decides where the events start.
func (l *placer) first() (placed, error) {
	o := l.options
	hz, _, _ := l.events.rates()
	p := placed{decision: decision{placement: PlaceCPUs, why: "each CPU is sampled"}, seen: demand{hz: hz}}
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
	if l.considered(p.seen.hz) {
		if err := l.firstLook(&p.seen); err != nil {
			return p, err
		}
	}
	if p.decision = place(p.seen); p.decision.placement == PlaceThreads { // once no threads start: see mover
		p.decision = decision{PlaceCPUs, "", p.seen.onCPUs(), untilCalm}
	}
	return p.afford(o.Budget)
}

// considered reports whether it matters, at this rate, whom interrupts hit.
func (l *placer) considered(hz float64) bool { return hz >= hotFrequency || l.options.Budget > 0 }

// placed is where events are, why, and the highest rate they may have.
type placed struct {
	decision
	seen demand  // the demand it was decided on
	cap  float64 // Hz that the budget allows; 0: no limit
}

// afford returns p with the rate lowered until others pay no more than the budget, a
// part of a core. If even the slowest rate costs too much, afford returns that rate and a
// BudgetError.
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

// rate returns the base rate for the requested one.
func (p *placed) rate(asked float64) float64 {
	if p.cap > 0 {
		return min(asked, p.cap)
	}
	return asked
}

// lowered explains in words that the rate is lower than requested; empty: it is not.
func (p *placed) lowered(asked float64) string {
	if p.cap == 0 || p.cap >= asked {
		return ""
	}
	return fmt.Sprintf("sampled at %.3g Hz instead of %.4g: more would cost processes that are not sampled more than the budget", p.cap, asked)
}

// firstLook watches the machine for a moment and fills in the demand.
func (l *placer) firstLook(d *demand) error {
	before, err := l.sight()
	if err != nil {
		return err
	}
	time.Sleep(firstSight)
	after, err := l.sight()
	if err != nil {
		return err
	}
	*d = l.compare(before, after)
	d.rare = 0 // unknown: the look is too short
	d.cgroup = ownCgroup(l.options.PIDs)
	return nil
}

// firstSight is how long firstLook watches the machine before hot events are placed.
const firstSight = 50 * time.Millisecond

// sight is what all threads had used at one moment.
type sight struct {
	at      time.Time
	threads map[table.ThreadID]table.ThreadTimes
}

// sight reads the times of all threads.
func (l *placer) sight() (sight, error) {
	seen := sight{at: time.Now(), threads: map[table.ThreadID]table.ThreadTimes{}}
	err := l.table.EachThread(func(t table.ThreadTimes) { seen.threads[t.ThreadID] = t })
	return seen, err
}

// compare returns what the targets and others did between two sights.
func (l *placer) compare(before, after sight) demand {
	hz, _, _ := l.events.rates()
	d := demand{hz: hz, interrupt: interruptCost()}
	elapsed := after.at.Sub(before.at).Seconds()
	var others, mine, rare, switches float64
	for id, t := range after.threads {
		old := before.threads[id]
		if old.Started != t.Started {
			old = table.ThreadTimes{}
		}
		used := float64(t.Runtime - old.Runtime)
		switch {
		case t.Target || l.table.Wanted(id.PID):
			d.threads++
			mine += used
			if used/1e9*d.hz < 1 {
				rare += used
			}
			switches += float64(t.Switches - old.Switches)
		case id.PID != os.Getpid():
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

// ownCgroup returns the cgroup2 directory of these processes if it holds no others, else
// the empty string. The root does not count: it holds everything that was never placed.
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

// Placement returns where events are now and why, in words, and what others pay for it,
// as a part of a core.
func (s *Sampler) Placement() (why string, bystanders float64) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.say(), s.events.placed.bystanders
}

// say returns where events are and why, in words.
func (e *eventSet) say() string {
	if lowered := e.placed.lowered(e.asked); lowered != "" {
		return e.placed.why + "; " + lowered
	}
	return e.placed.why
}

// lowered explains in words that the rate of the window that ends now is lower than
// requested; empty: it is not.
func (e *eventSet) lowered() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.placed.lowered(e.asked)
}
