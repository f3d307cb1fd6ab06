package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/external"
)

// newMeter makes that of a kernel.
func newMeter(kernel string, w workload, pid int) (meter, error) {
	if kernel != ours {
		return toolMeter{external.Kernel(kernel), pid}, findPeers()
	}
	r, err := recorder.Start(setup(), recorder.Options{Targets: recorder.Targets{PIDs: []int{pid}}, Event: "cpu-clock",
		Frequency: idle, Threads: true, MeasureCost: true, Placement: cpu.PlaceCPUs})
	if err != nil {
		return nil, err
	}
	if w.managed {
		if err := (runtimes.Runtime{Name: "the workload", Language: w.language}).Await(r.Unwinder(), pid); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return &ourMeter{r}, nil
}

// idle is our rate while the workload is to be alone: the lowest there is.
const idle = cpu.MinFrequency

// ourMeter is our own kernel, which goes on while rates change, as that of an agent does.
type ourMeter struct{ *recorder.Recorder }

func (m *ourMeter) measure(ctx context.Context, hz float64, length time.Duration) (t taken, err error) {
	if err := m.turn(hz); err != nil {
		return t, err
	}
	if err := harness.Sleep(ctx, settle); err != nil {
		return t, err
	}
	if _, err := m.Cut(); err != nil { // what was seen meanwhile does not count
		return t, err
	}
	began, err := m.account()
	if err != nil {
		return t, err
	}
	w, err := m.Record(ctx, length, nil)
	if err != nil {
		return t, err
	}
	if ctx.Err() == nil && w.N() == 0 {
		return t, errors.New("nothing was sampled")
	}
	ended, err := m.account()
	if err != nil {
		return t, err
	}
	return ended.since(began), errors.Join(m.turn(idle), ctx.Err())
}

// account is what was spent up to a moment.
type account struct {
	at                   time.Time
	own, bpf, interrupts time.Duration
}

func (m *ourMeter) account() (a account, err error) {
	a.at, a.own = time.Now(), cpuTime(unix.RUSAGE_SELF)
	a.bpf, a.interrupts, err = m.Spent()
	return a, err
}

func (a account) since(o account) taken {
	cores := func(now, then time.Duration) float64 { return (now - then).Seconds() / a.at.Sub(o.at).Seconds() }
	return taken{own: cores(a.own, o.own), bpf: cores(a.bpf, o.bpf), interrupts: cores(a.interrupts, o.interrupts),
		span: span{o.at.UnixNano(), a.at.UnixNano()}}
}

// turn has a rate be in force.
func (m *ourMeter) turn(hz float64) error {
	if err := m.SetFrequency(hz); err != nil {
		return err
	}
	_, err := m.Cut()
	return err
}

// toolMeter is an external profiler, which is started for each run, as it is for each window.
type toolMeter struct {
	kernel external.Kernel
	pid    int
}

func (m toolMeter) Close() error { return nil }

func (m toolMeter) measure(ctx context.Context, hz float64, length time.Duration) (t taken, err error) {
	own := cpuTime(unix.RUSAGE_SELF) + cpuTime(unix.RUSAGE_CHILDREN)
	s, err := external.New(ctx, external.Options{Kernel: m.kernel, PIDs: []int{m.pid}, Frequency: hz, AllowAttach: true, Longest: time.Minute})
	if err != nil {
		return t, fmt.Errorf("%w (.ci/peers installs py-spy and async-profiler)", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	began := time.Now()
	if err := harness.Sleep(ctx, length); err != nil {
		return t, err
	}
	t.span = span{began.UnixNano(), time.Now().UnixNano()}
	if _, err := s.Finish(); err != nil {
		return t, err
	}
	own = cpuTime(unix.RUSAGE_SELF) + cpuTime(unix.RUSAGE_CHILDREN) - own
	t.own = own.Seconds() / length.Seconds()
	return t, nil
}

// cpuTime is CPU time of this process, or of its children that have ended.
func cpuTime(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0 // there is no such failure but for a wrong argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
