package agent

import (
	"cmp"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc/footprint"
)

// Usage is what a process has used, and holds.
type Usage struct {
	CPU    time.Duration
	Tools  time.Duration // of it, other profilers that have ended
	Memory int64         // bytes, BPF maps among them
	Maps   int64         // of these
}

// process measures this process, and has Go's heap keep within what the rest of
// its memory leaves of a budget.
type process struct {
	budget int64 // bytes; 0: none
	now    func() time.Time
	heap   int // percent of garbage that is usual; 0: not asked yet

	mu           sync.Mutex // guards all below
	looked       time.Time  // when maps were looked at last; zero: they have changed
	looking      bool       // they are being looked at
	maps, mapped int64      // bytes of all; and of those that count as resident as well
}

// lookAtMaps is how often it is: it reads a file for each descriptor. Tables of
// unwinding grow in between.
const lookAtMaps = 2 * time.Minute

// changed says that there are other maps now.
func (p *process) changed() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = time.Time{}
}

// usualHeap is how much garbage there may be where CPU time is not scarce.
func usualHeap() int {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	return percent
}

// collect has garbage be collected when there is so much of it, in percent of what
// is in use; 0: as is usual.
func (p *process) collect(percent int) {
	if p == nil {
		return
	}
	if p.heap == 0 {
		p.heap = usualHeap()
	}
	debug.SetGCPercent(cmp.Or(percent, p.heap))
}

// usage measures CPU time and memory. Maps take long to look at: it returns what was found last,
// and has them looked at in another goroutine if that is due.
func (p *process) usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); !p.looking && (p.looked.IsZero() || now.Sub(p.looked) >= lookAtMaps) {
		p.looked, p.looking = now, true
		go p.look()
	}
	return Usage{CPU: ownCPU(), Tools: toolsCPU(), Maps: p.maps, Memory: max(int64(ownMemory())-p.mapped, 0) + p.maps}
}

// look looks at maps.
func (p *process) look() {
	f, err := footprint.Of(os.Getpid())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looking = false
	if err != nil {
		p.looked = time.Time{}
		return
	}
	p.maps, p.mapped = f.MapBytes, f.RSSMaps
	if p.budget > 0 {
		debug.SetMemoryLimit(heapLimit(p.budget, f.Memory(), goMemory()))
	}
}

// heapLimit is what Go may have of a budget: what the rest of the process and its
// maps leave, less a reserve, but a quarter at least. Less would have it collect
// garbage all the time, and not be enough all the same.
func heapLimit(budget, used, goUses int64) int64 {
	rest := max(used-goUses, 0)
	return max(budget-budget/20-rest, budget/4)
}

// goMemory is what Go's runtime has of the machine's memory.
func goMemory() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(min(samples[0].Value.Uint64()-samples[1].Value.Uint64(), math.MaxInt64))
}

// ownCPU is the CPU time that this process has used, with the scheduler's precision,
// and that of other profilers it has run, once they have ended.
func ownCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano()) + toolsCPU()
}

// toolsCPU is that of other profilers it has run, once they have ended.
func toolsCPU() time.Duration {
	var tools unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &tools) != nil {
		return 0
	}
	return time.Duration(tools.Utime.Nano() + tools.Stime.Nano())
}

// ownMemory is what this process has in memory; 0 if that cannot be read.
func ownMemory() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
