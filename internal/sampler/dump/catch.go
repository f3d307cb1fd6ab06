package dump

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

const (
	catchEvery = time.Millisecond      // of a thread's time on a CPU
	catchFor   = 20 * time.Millisecond // at most
)

// catch waits for threads that run to be interrupted by a timer of their own:
// on nobody else's time. Those that stop running first are not caught.
func (r *reader) catch(ctx context.Context, tids []uint32) (caught map[uint32]kernelStanding, err error) {
	ring, err := ringbuf.NewReader(r.objects.Caught)
	if err != nil {
		return nil, fmt.Errorf("read caught threads: %w", err)
	}
	defer ring.Close()
	if err := r.objects.Catching.Set(uint32(1)); err != nil {
		return nil, fmt.Errorf("set catching: %w", err)
	}
	var timers []*timer
	defer func() {
		for _, t := range timers {
			err = errors.Join(err, t.close())
		}
		err = errors.Join(err, r.objects.Catching.Set(uint32(0)))
	}()
	for _, tid := range tids {
		t, err := openTimer(int(tid), r.objects.OnTimer)
		if errors.Is(err, unix.ESRCH) {
			continue // it ended
		}
		if err != nil {
			return nil, fmt.Errorf("catch thread %d: %w", tid, err)
		}
		timers = append(timers, t)
	}
	deadline := time.Now().Add(catchFor)
	ring.SetDeadline(deadline)
	caught = map[uint32]kernelStanding{}
	var record ringbuf.Record
	for len(caught) < len(timers) && ctx.Err() == nil {
		if err := ring.ReadInto(&record); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			return nil, fmt.Errorf("read caught threads: %w", err)
		}
		if len(record.RawSample) < standingSize {
			continue
		}
		s := decode(record.RawSample)
		if _, again := caught[s.Tid]; !again {
			caught[s.Tid] = s
		}
	}
	return caught, nil
}

// timer is an event on one thread's time.
type timer struct {
	fd   int
	link link.Link
}

func openTimer(tid int, program *ebpf.Program) (*timer, error) {
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: uint64(catchEvery), Bits: unix.PerfBitDisabled}
	fd, err := unix.PerfEventOpen(attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	t := &timer{fd: fd}
	t.link, err = link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: program, Attach: ebpf.AttachPerfEvent})
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *timer) close() (err error) {
	if t.link != nil {
		err = t.link.Close()
	}
	return errors.Join(err, unix.Close(t.fd))
}
