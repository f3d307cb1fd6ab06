package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/internal/wire"
)

// newMeter makes that of a kernel.
func (c *costing) newMeter(w workload, pid int) (meter, error) {
	if c.kernel != ours {
		return toolMeter{external.Kernel(c.kernel), pid}, findPeers()
	}
	setup := setup()
	setup.Eager = true
	machine, err := recorder.Open(setup)
	if err != nil {
		return nil, err
	}
	m := &ourMeter{machine: machine}
	if err := m.start(w, pid, c.slot); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// start begins to sample as an agent does whose profile has a policy.
func (m *ourMeter) start(w workload, pid int, slot time.Duration) (err error) {
	m.Recorder, err = m.machine.Start(recorder.Options{Targets: recorder.Targets{PIDs: []int{pid}}, Event: "cpu-clock", Frequency: idle,
		Threads: true, Slot: slot, MeasureCost: true, Placement: cpu.PlaceCPUs})
	if err != nil || !w.managed {
		return err
	}
	return (runtimes.Runtime{Name: "the workload", Language: w.language}).Await(m.Unwinder(), pid)
}

// idle is our rate while the workload is to be alone: the lowest there is.
const idle = cpu.MinFrequency

// ourMeter is our own kernel, which goes on while rates change, as that of an agent does.
type ourMeter struct {
	machine *recorder.Machine
	*recorder.Recorder
}

func (m *ourMeter) Close() (err error) {
	if m.Recorder != nil {
		err = m.Recorder.Close()
	}
	return errors.Join(err, m.machine.Close())
}

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
	runtime.GC() // what other rates left behind is not of this one
	began, err := m.account()
	if err != nil {
		return t, err
	}
	spooled, err := m.window(ctx, hz, length)
	if err != nil {
		return t, err
	}
	ended, err := m.account()
	if err != nil {
		return t, err
	}
	t = ended.since(began)
	t.bytes = float64(len(spooled))
	return t, errors.Join(m.turn(idle), ctx.Err())
}

// How often an agent looks whether the kernel's tables fill, and when it cuts early.
const (
	samplesALook = 8000
	leastLook    = 100 * time.Millisecond
	fullEnough   = 0.4
)

// window does what an agent does for one: it is cut at its end, or in pieces where the
// kernel's tables fill, named and encoded.
func (m *ourMeter) window(ctx context.Context, hz float64, length time.Duration) (spooled []byte, err error) {
	look := max(time.Duration(samplesALook/hz/float64(runtime.NumCPU())*float64(time.Second)), leastLook)
	var pieces []*profile.Window
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := harness.Sleep(ctx, min(look, time.Until(end))); err != nil {
			return nil, err
		}
		if m.Sampler().Full() < fullEnough && time.Now().Before(end) {
			continue
		}
		w, err := m.Cut()
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, w)
	}
	w, err := profile.Merge(pieces...)
	if err != nil {
		return nil, err
	}
	if w.N() == 0 {
		return nil, errors.New("nothing was sampled")
	}
	if w, err = m.Name(ctx, w); err != nil {
		return nil, err
	}
	return proto.Marshal(wire.Seal(w, profile.Run{}))
}

// account is what was spent up to a moment.
type account struct {
	at                   time.Time
	own, bpf, interrupts time.Duration
}

func (m *ourMeter) account() (a account, err error) {
	a.at, a.own = time.Now(), cpuTime(unix.RUSAGE_SELF)
	spent, err := m.Sampler().Spent()
	a.bpf, a.interrupts = spent.BPF, spent.Interrupt
	return a, err
}

func (a account) since(o account) taken {
	cores := func(now, then time.Duration) float64 { return (now - then).Seconds() / a.at.Sub(o.at).Seconds() }
	return taken{own: cores(a.own, o.own), bpf: cores(a.bpf, o.bpf), interrupts: cores(a.interrupts, o.interrupts),
		span: span{o.at.UnixNano(), a.at.UnixNano()}}
}

// turn has a rate be in force.
func (m *ourMeter) turn(hz float64) error {
	if err := m.Sampler().SetFrequency(hz); err != nil {
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
