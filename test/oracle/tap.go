package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/sampler"
)

var le = binary.LittleEndian

const (
	// ringPages of 4 KB hold half a second of full stacks at 500 Hz.
	ringPages = 1 << 12
	// stackBytes is what the kernel copies of each stack; a record ends at 64 KB.
	stackBytes = 60 << 10
	// readEvery bounds how much older than a record the view of its process is.
	readEvery = 2 * time.Millisecond
)

// registersAsked are rax to rip and r8 to r15, by the kernel's numbers.
const registersAsked = 0xff01ff

// dwarfOrder is where DWARF's register n lies among those the kernel gives,
// which come in the order of its numbers: ax bx cx dx si di bp sp ip r8-r15.
var dwarfOrder = [17]int{0, 3, 2, 1, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 8}

const dwarfIP = 16

// record is what the kernel wrote of one interrupt.
type record struct {
	pid, tid  int
	cpu       int
	time      uint64 // CLOCK_MONOTONIC
	space     *space // of the process then
	registers [17]uint64
	stack     []byte // from rsp up
}

// tap reads the rings of the events.
type tap struct {
	space  func(pid int, pc uint64) *space
	wanted func(pid int) bool
	rings  []*ring

	background *sampler.Background

	mu      sync.Mutex // guards all below
	records []*record
	lost    uint64
}

// ring is one event's memory, shared with the kernel.
type ring struct {
	memory []byte
	page   *unix.PerfEventMmapPage
	data   []byte
	buffer []byte
}

func newTap(space func(pid int, pc uint64) *space) *tap {
	return &tap{space: space, background: sampler.NewBackground()}
}

func (t *tap) attr(a *unix.PerfEventAttr) {
	a.Sample_type = unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU |
		unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
	a.Sample_regs_user = registersAsked
	a.Sample_stack_user = stackBytes
	a.Bits |= unix.PerfBitUseClockID
	a.Clockid = unix.CLOCK_MONOTONIC
}

func (t *tap) open(fd, cpu int) error {
	memory, err := unix.Mmap(fd, 0, (1+ringPages)*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the ring of the event on CPU %d: %w", cpu, err)
	}
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0]))
	t.rings = append(t.rings, &ring{memory: memory, page: page, data: memory[4096:]})
	return nil
}

func (t *tap) start() {
	t.background.Every(readEvery, func(time.Time) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.read()
	})
}

func (t *tap) close() error {
	t.background.Stop()
	var errs []error
	for _, r := range t.rings {
		errs = append(errs, unix.Munmap(r.memory))
	}
	return errors.Join(errs...)
}

// take gives the records up to a time, in the order the kernel wrote them.
func (t *tap) take(until uint64) (taken []*record, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
	var later []*record
	for _, r := range t.records {
		// A record is written some microseconds after its sample was taken.
		if r.time < until+uint64(maxShift) {
			taken = append(taken, r)
		} else {
			later = append(later, r)
		}
	}
	t.records, lost, t.lost = later, t.lost, 0
	return taken, lost
}

func (t *tap) read() {
	for _, r := range t.rings {
		head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
		for tail < head {
			header := r.at(tail, 8)
			kind, size := le.Uint32(header), uint64(le.Uint16(header[6:]))
			if size < 8 {
				break // the kernel never writes this: give up the ring rather than loop
			}
			t.add(kind, r.at(tail+8, size-8))
			tail += size
		}
		atomic.StoreUint64(&r.page.Data_tail, head)
	}
}

// at gives n bytes of the ring, which may wrap around its end.
func (r *ring) at(position, n uint64) []byte {
	from := position % uint64(len(r.data))
	if from+n <= uint64(len(r.data)) {
		return r.data[from : from+n]
	}
	r.buffer = append(r.buffer[:0], r.data[from:]...)
	r.buffer = append(r.buffer, r.data[:n-(uint64(len(r.data))-from)]...)
	return r.buffer
}

func (t *tap) add(kind uint32, body []byte) {
	switch kind {
	case unix.PERF_RECORD_LOST:
		if len(body) >= 16 {
			t.lost += le.Uint64(body[8:])
		}
	case unix.PERF_RECORD_SAMPLE:
		r := parseRecord(body)
		if r == nil || !t.wanted(r.pid) { // the events see every process
			return
		}
		if r.space = t.space(r.pid, r.registers[dwarfIP]); r.space != nil {
			t.records = append(t.records, r)
		}
	}
}

// parseRecord reads the fields that attr asks for, in the kernel's order:
//
//	pid tid u32 | time u64 | cpu u32, 0 | abi u64, registers | size u64, bytes, size used u64
//
// nil where the thread had no user registers: it is the kernel's.
func parseRecord(b []byte) *record {
	const beforeRegisters = 4 + 4 + 8 + 8 + 8
	n := bits.OnesCount64(registersAsked)
	if len(b) < beforeRegisters+8*n+8 || le.Uint64(b[beforeRegisters-8:]) != unix.PERF_SAMPLE_REGS_ABI_64 {
		return nil
	}
	r := &record{pid: int(le.Uint32(b)), tid: int(le.Uint32(b[4:])), time: le.Uint64(b[8:]), cpu: int(le.Uint32(b[16:]))}
	for i, from := range dwarfOrder {
		r.registers[i] = le.Uint64(b[beforeRegisters+8*from:])
	}
	b = b[beforeRegisters+8*n:]
	size := le.Uint64(b)
	if size == 0 || uint64(len(b)) < 8+size+8 {
		return r
	}
	used := min(le.Uint64(b[8+size:]), size)
	r.stack = append([]byte(nil), b[8:8+used]...)
	return r
}
