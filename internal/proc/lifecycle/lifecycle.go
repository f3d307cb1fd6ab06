// Package lifecycle reports processes as they fork, exec, exit and map code, from the kernel's own records.
//
// One dummy perf event per CPU counts nothing; the kernel writes its task and
// mmap records into that event's ring. Read merges the rings by time.
package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// Kind is what happened.
type Kind uint8

const (
	Fork   Kind = iota + 1 // a process, not a thread, was forked: Parent is its parent
	Exec                   // the process runs a new program: its mappings are gone
	Exit                   // the process's first thread exited
	Map                    // the process mapped code
	Lost                   // the kernel dropped records of unknown processes
	Thread                 // a thread was created: TID in process PID
)

// Event is one thing that happened.
type Event struct {
	Kind   Kind
	Time   uint64 // CLOCK_MONOTONIC, ns
	PID    int
	TID    int
	Parent int
	Map    Mapping
	Lost   uint64
}

// Mapping is a mapping of code, as the kernel describes it.
type Mapping struct {
	Start, End, Offset uint64
	Major, Minor       uint32
	Inode              uint64
	Path               string
}

// Watcher reads the records of all CPUs.
type Watcher struct {
	rings []*ring
	fds   []unix.PollFd
	wake  int // eventfd: ends a Wait
}

// ringPages is the size of each CPU's ring; a power of two.
const ringPages = 64

// Open starts watching all processes on the given CPUs.
func Open(cpus []int) (*Watcher, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	w := &Watcher{wake: wake, fds: []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}}
	for _, cpu := range cpus {
		r, err := openRing(cpu)
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("watch processes on CPU %d: %w", cpu, err)
		}
		w.rings = append(w.rings, r)
		w.fds = append(w.fds, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
	}
	return w, nil
}

// Wait blocks until there is something to read, at most for the timeout, or
// until Interrupt is called.
func (w *Watcher) Wait(timeout time.Duration) error {
	_, err := unix.Poll(w.fds, int(timeout.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for process events: %w", err)
	}
	return nil
}

// Pause blocks for a time, or until Interrupt is called. It holds the calling
// thread: for a goroutine that owns it, to sleep otherwise takes two more switches
// of threads.
func (w *Watcher) Pause(d time.Duration) {
	timeout := unix.NsecToTimespec(d.Nanoseconds())
	_, _ = unix.Ppoll(w.fds[:1], &timeout, nil) // where it fails, what waits is read sooner
}

// Interrupt ends a Wait in another goroutine, now or the next.
func (w *Watcher) Interrupt() {
	one := [8]byte{1}
	unix.Write(w.wake, one[:]) // fails only where it is already signalled
}

// Read appends all events that wait, in the order of their times.
func (w *Watcher) Read(events []Event) []Event {
	first := len(events)
	for _, r := range w.rings {
		events = r.read(events)
	}
	fresh := events[first:]
	slices.SortStableFunc(fresh, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	return events
}

// Close stops watching.
func (w *Watcher) Close() error {
	var errs []error
	for _, r := range w.rings {
		errs = append(errs, r.close())
	}
	w.rings = nil
	if w.wake >= 0 {
		errs = append(errs, unix.Close(w.wake))
		w.wake = -1
	}
	return errors.Join(errs...)
}

// ring is the buffer of one CPU's event.
type ring struct {
	fd     int
	memory []byte
	meta   *unix.PerfEventMmapPage
	data   []byte
	record []byte // one that wraps around is put together here
}

func openRing(cpu int) (*ring, error) {
	const (
		mmap2         = unix.PerfBitMmap2
		useClock      = unix.PerfBitUseClockID
		sampleIDAll   = unix.PerfBitSampleIDAll
		commExec      = unix.PerfBitCommExec
		wakeWatermark = unix.PerfBitWatermark
	)
	attr := &unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitMmap | mmap2 | unix.PerfBitComm | commExec | unix.PerfBitTask |
			sampleIDAll | useClock | wakeWatermark,
		Wakeup:  1,
		Clockid: unix.CLOCK_MONOTONIC,
	}
	fd, err := unix.PerfEventOpen(attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("open event: %w: %s", err, proc.AsRoot(", or give atys CAP_PERFMON (\"atys doctor\" shows how)", "CAP_PERFMON"))
	}
	if err != nil {
		return nil, fmt.Errorf("open event: %w", err)
	}
	memory, err := unix.Mmap(fd, 0, (1+ringPages)*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: no more memory may be locked (kernel.perf_event_mlock_kb and \"ulimit -l\" limit it)", err)
		}
		return nil, fmt.Errorf("map event's ring: %w", err)
	}
	return &ring{fd: fd, memory: memory, meta: (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0])),
		data: memory[unix.Getpagesize():]}, nil
}

func (r *ring) close() error {
	return errors.Join(unix.Munmap(r.memory), unix.Close(r.fd))
}

// read takes all records out of the ring.
func (r *ring) read(events []Event) []Event {
	head := atomic.LoadUint64(&r.meta.Data_head)
	tail := r.meta.Data_tail
	size := uint64(len(r.data))
	for tail < head {
		header := r.bytes(tail, 8)
		length := uint64(native.Uint16(header[6:]))
		if length < 8 || length > size {
			tail = head // a damaged ring cannot be followed any further
			events = append(events, Event{Kind: Lost})
			break
		}
		if e, ok := parse(r.bytes(tail, length)); ok {
			events = append(events, e)
		}
		tail += length
	}
	atomic.StoreUint64(&r.meta.Data_tail, tail)
	return events
}

// bytes gives n bytes of the ring from a position on, joined where they wrap.
func (r *ring) bytes(at, n uint64) []byte {
	size := uint64(len(r.data))
	at &= size - 1
	if at+n <= size {
		return r.data[at : at+n]
	}
	r.record = append(r.record[:0], r.data[at:]...)
	r.record = append(r.record, r.data[:at+n-size]...)
	return r.record
}
