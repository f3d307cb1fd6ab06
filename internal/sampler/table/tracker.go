package table

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"atys.dev/atys/internal/bpf"
)

// Tracker follows the processes of this machine for all tables: children of targets
// become targets in the kernel, and each table learns of births, exits and exact times.
type Tracker struct {
	log     *slog.Logger
	objects trackerObjects
	shared  *bpf.Mapped[kernelTracking]
	links   []link.Link
	list    *link.Iter
	births  *ringbuf.Reader
	stop    chan struct{}
	done    sync.WaitGroup

	targetsMu sync.Mutex // of one read and write of an entry of the kernel's targets; taken last

	mu     sync.Mutex // guards all below, and the times that tables keep; taken after a table's lock
	exits  *ringbuf.Reader
	record ringbuf.Record
	buffer []byte
	tables [maxTables]*Table
}

const maxTables = len(kernelTarget{}.Keep)

// trackerObjects is what is loaded of the object: of rows it needs only the types.
type trackerObjects struct {
	ListThreads *ebpf.Program `ebpf:"list_threads"`
	OnExit      *ebpf.Program `ebpf:"on_exit"`
	OnFree      *ebpf.Program `ebpf:"on_free"`
	OnFork      *ebpf.Program `ebpf:"on_fork"`
	State       *ebpf.Map     `ebpf:"tracking_state"`
	Targets     *ebpf.Map     `ebpf:"targets"`
	Births      *ebpf.Map     `ebpf:"births"`
	Exits       *ebpf.Map     `ebpf:"exits"`
}

// NewTracker follows processes from here on.
func NewTracker(log *slog.Logger) (*Tracker, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	tr := &Tracker{log: log, stop: make(chan struct{}), buffer: make([]byte, 1<<17)}
	if err := tr.open(); err != nil {
		return nil, errors.Join(err, tr.Close())
	}
	tr.done.Go(tr.listen)
	tr.done.Go(tr.followBirths)
	return tr, nil
}

func (tr *Tracker) open() error {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read embedded BPF object: %w", err)
	}
	o := &tr.objects
	if err := spec.LoadAndAssign(o, nil); err != nil {
		return bpf.Explain("load the tracker of processes", err)
	}
	if tr.shared, err = bpf.Map[kernelTracking](o.State); err != nil {
		return err
	}
	if tr.exits, err = ringbuf.NewReader(o.Exits); err != nil {
		return fmt.Errorf("read exited threads: %w", err)
	}
	if tr.births, err = ringbuf.NewReader(o.Births); err != nil {
		return fmt.Errorf("read births: %w", err)
	}
	if tr.list, err = link.AttachIter(link.IterOptions{Program: o.ListThreads}); err != nil {
		return fmt.Errorf("attach thread iterator: %w", err)
	}
	for _, p := range []*ebpf.Program{o.OnExit, o.OnFree, o.OnFork} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return bpf.Explain("follow processes", err)
		}
		tr.links = append(tr.links, l)
	}
	return nil
}

// Close ends the tracking. All tables must be closed.
func (tr *Tracker) Close() error {
	close(tr.stop)
	var errs []error
	if tr.births != nil {
		errs = append(errs, tr.births.Close()) // ends followBirths
	}
	tr.done.Wait()
	for _, l := range tr.links {
		errs = append(errs, l.Close())
	}
	if tr.list != nil {
		errs = append(errs, tr.list.Close())
	}
	if tr.exits != nil {
		errs = append(errs, tr.exits.Close())
	}
	errs = append(errs, tr.shared.Close())
	o := &tr.objects
	for _, part := range []io.Closer{o.ListThreads, o.OnExit, o.OnFree, o.OnFork, o.State, o.Targets, o.Births, o.Exits} {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}

// join gives a table a number. Its counters go on from where another table left them.
func (tr *Tracker) join(t *Table) (number int, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, other := range tr.tables {
		if other == nil {
			tr.tables[i] = t
			if !t.options.onlyTargets() {
				atomic.OrUint32(&tr.shared.Value.HearsAll, 1<<i)
			}
			return i, nil
		}
	}
	return 0, fmt.Errorf("start a sampler: %d are running already, which is the most", maxTables)
}

// leave takes a table's number back, and its targets out of the kernel.
func (tr *Tracker) leave(t *Table) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.tables[t.number] = nil
	atomic.AndUint32(&tr.shared.Value.HearsAll, ^t.bit())
	atomic.AndUint32(&tr.shared.Value.Alert, ^t.bit())
	for { // forks copy the entries of targets meanwhile
		left, err := tr.targetsOf(t)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			atomic.AndUint32(&tr.shared.Value.Choosing, ^t.bit())
			return nil
		}
		var errs []error
		for _, pid := range left {
			errs = append(errs, tr.dropTarget(t, pid))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

// targetsOf lists the targets of a table in the kernel.
func (tr *Tracker) targetsOf(t *Table) (left []uint32, err error) {
	var pid uint32
	var target kernelTarget
	all := tr.objects.Targets.Iterate()
	for all.Next(&pid, &target) {
		if target.Tables&t.bit() != 0 {
			left = append(left, pid)
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // some were deleted meanwhile
		return nil, err
	}
	return left, nil
}

// setTarget makes a process a target of a table, whose samples are kept with the given
// probabilities. An entry made by the kernel meanwhile is read again.
func (tr *Tracker) setTarget(t *Table, pid uint32, set func(keep *[2]uint32)) error {
	tr.targetsMu.Lock()
	defer tr.targetsMu.Unlock()
	atomic.OrUint32(&tr.shared.Value.Choosing, t.bit())
	for {
		var target kernelTarget
		how := ebpf.UpdateExist
		switch err := tr.objects.Targets.Lookup(pid, &target); {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			how = ebpf.UpdateNoExist
		case err != nil:
			return err
		}
		target.Tables |= t.bit()
		set(&target.Keep[t.number])
		err := tr.objects.Targets.Update(pid, &target, how)
		if errors.Is(err, ebpf.ErrKeyExist) || errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		return err
	}
}

// keepOf returns what is kept of a target's samples; false: it is none of the table's.
func (tr *Tracker) keepOf(t *Table, pid uint32) (keep [2]uint32, ok bool) {
	var target kernelTarget
	if tr.objects.Targets.Lookup(pid, &target) != nil || target.Tables&t.bit() == 0 {
		return keep, false
	}
	return target.Keep[t.number], true
}

// dropTarget ends that a process is a target of a table.
func (tr *Tracker) dropTarget(t *Table, pid uint32) error {
	tr.targetsMu.Lock()
	defer tr.targetsMu.Unlock()
	var target kernelTarget
	err := tr.objects.Targets.Lookup(pid, &target)
	if err == nil {
		target.Tables &^= t.bit()
		target.Keep[t.number] = [2]uint32{}
		if target.Tables != 0 {
			err = tr.objects.Targets.Update(pid, &target, ebpf.UpdateExist)
		} else {
			err = tr.objects.Targets.Delete(pid)
		}
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// followBirths tells tables of the births that they wait for.
func (tr *Tracker) followBirths() {
	var record ringbuf.Record
	for {
		if err := tr.births.ReadInto(&record); err != nil {
			if !errors.Is(err, ringbuf.ErrClosed) {
				tr.log.Error("stop reading births", "error", err)
			}
			return
		}
		if len(record.RawSample) < 4 {
			continue
		}
		for mask := *(*uint32)(unsafe.Pointer(&record.RawSample[0])); mask != 0; mask &= mask - 1 {
			tr.mu.Lock()
			t := tr.tables[bits.TrailingZeros32(mask)]
			tr.mu.Unlock()
			if t != nil && t.options.OnBirth != nil {
				t.options.OnBirth()
			}
		}
	}
}

// The ring of exited threads has room for 2,520 of them. How full it is one sees
// without a call, so it is looked at often, and read each second, or as soon as a
// quarter of it is filled: a script may start and end 4,000 processes in a second.
const (
	lookEvery   = 100 * time.Millisecond
	listenEvery = time.Second
	stormy      = 0.25
)

// listen hears of threads that exit, until the tracker is closed.
func (tr *Tracker) listen() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	heard := time.Now()
	for {
		select {
		case <-tr.stop:
			return
		case now := <-ticker.C:
			waiting := float64(tr.exits.AvailableBytes()) / float64(tr.exits.BufferSize())
			if now.Sub(heard) >= listenEvery || waiting > stormy {
				tr.hear(now)
				heard = now
			}
		}
	}
}

// hear charges the threads that have exited to the windows that are being filled: a
// window may last an hour.
func (tr *Tracker) hear(now time.Time) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, t := range tr.tables {
		if t != nil {
			clear(t.exact.settled)
			if err := t.lookAtMembers(); err != nil {
				t.log.Warn("read exited threads", "error", err)
			}
		}
	}
	if err := tr.drainExits(); err != nil {
		tr.log.Warn("read exited threads", "error", err)
	}
	for _, t := range tr.tables {
		if t != nil {
			t.exact.giveUp(now)
			t.exact.ended = t.Targets.forgetEnded(t.exact.ended)
		}
	}
}

// drainExits passes exits on to the tables that hear of them.
func (tr *Tracker) drainExits() error {
	tr.exits.SetDeadline(time.Now())
	for {
		err := tr.exits.ReadInto(&tr.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read exited threads: %w", err)
		}
		if len(tr.record.RawSample) < int(unsafe.Sizeof(kernelExited{})) {
			continue
		}
		e := (*kernelExited)(unsafe.Pointer(&tr.record.RawSample[0]))
		for mask := e.Tables; mask != 0; mask &= mask - 1 {
			if t := tr.tables[bits.TrailingZeros32(mask)]; t != nil {
				t.exact.hear(e, t.wantedExact)
			}
		}
	}
}

// threadTimesSize is what the iterator writes for each thread.
const threadTimesSize = int(unsafe.Sizeof(kernelThreadTimes{}))

// snapshot lists all threads of the machine. The caller holds the lock.
func (tr *Tracker) snapshot(each func(*kernelThreadTimes)) error {
	r, err := tr.list.Open()
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer r.Close()
	held := 0
	for {
		n, err := r.Read(tr.buffer[held:])
		held += n
		at := 0
		for ; at+threadTimesSize <= held; at += threadTimesSize {
			if t := (*kernelThreadTimes)(unsafe.Pointer(&tr.buffer[at])); t.Tgid != 0 {
				each(t)
			}
		}
		held = copy(tr.buffer, tr.buffer[at:held])
		if errors.Is(err, io.EOF) || (err == nil && n == 0) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
	}
}
