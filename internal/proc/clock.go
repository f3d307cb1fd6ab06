package proc

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ClockOffset is what to add to CLOCK_MONOTONIC, which the kernel stamps
// samples with, to get the wall clock.
type ClockOffset struct {
	Offset time.Duration
	Error  time.Duration // the offset is off by this much at most
}

// Wall converts a CLOCK_MONOTONIC time.
func (c ClockOffset) Wall(monotonic time.Duration) time.Time {
	return time.Unix(0, int64(monotonic+c.Offset))
}

// ReadClockOffset measures it. Valid until someone sets the clock: measure
// once per window.
func ReadClockOffset() (ClockOffset, error) {
	clock := func(id int32) (time.Duration, error) {
		var ts unix.Timespec
		err := unix.ClockGettime(id, &ts)
		return time.Duration(ts.Nano()), err
	}
	offset, err := bracket(func() (time.Duration, error) { return clock(unix.CLOCK_MONOTONIC) },
		func() (time.Duration, error) { return clock(unix.CLOCK_REALTIME) })
	if err != nil {
		return ClockOffset{}, fmt.Errorf("read clocks: %w", err)
	}
	return offset, nil
}

// bracket reads one clock between two readings of the other and keeps the
// tightest of a few attempts: an interrupt in between widens the others.
func bracket(monotonic, wall func() (time.Duration, error)) (best ClockOffset, err error) {
	for i := range 5 {
		before, err := monotonic()
		if err != nil {
			return best, err
		}
		middle, err := wall()
		if err != nil {
			return best, err
		}
		after, err := monotonic()
		if err != nil {
			return best, err
		}
		half := (after - before + 1) / 2
		if i == 0 || half < best.Error {
			best = ClockOffset{Offset: middle - before - (after-before)/2, Error: half}
		}
	}
	return best, nil
}

// BootTime returns when the machine was booted, to which Stat.Started adds.
// CLOCK_BOOTTIME goes on while the machine sleeps, as Stat.Started does.
func BootTime() (time.Time, error) {
	var wall, boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &wall); err != nil {
		return time.Time{}, fmt.Errorf("read clocks: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, fmt.Errorf("read clocks: %w", err)
	}
	return time.Unix(0, wall.Nano()-boot.Nano()), nil
}

// CPUTime is how one CPU spent its time since boot, in steps of 10 ms. Guest
// time is part of User and Nice.
type CPUTime struct {
	CPU                                                          int
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal, Guest time.Duration
}

// CPUTimes returns how each online CPU spent its time.
func (f FS) CPUTimes() (times []CPUTime, err error) {
	err = read(f.root()+"/stat", func(data []byte) (err error) {
		times, err = ParseCPUTimes(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read CPU times: %w", err)
	}
	return times, nil
}

// maxCPUs is the largest number of CPUs a kernel can be built for.
const maxCPUs = 8192

// ParseCPUTimes parses /proc/stat: "cpuN user nice system idle iowait irq
// softirq steal guest guest_nice", and lines of other kinds, which it skips.
func ParseCPUTimes(data []byte) (times []CPUTime, err error) {
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 10 || !bytes.HasPrefix(fields[0], []byte("cpu")) || len(fields[0]) == len("cpu") {
			continue
		}
		var v [9]time.Duration
		for i := range v {
			n, err := strconv.ParseInt(string(fields[i+1]), 10, 64)
			if err != nil || n < 0 || n > int64(1<<63-1)/int64(userTick) {
				return nil, fmt.Errorf("%w CPU times %q", errMalformed, clip(line))
			}
			v[i] = time.Duration(n) * userTick
		}
		cpu, err := strconv.Atoi(string(fields[0][len("cpu"):]))
		if err != nil || cpu < 0 || len(times) == maxCPUs {
			return nil, fmt.Errorf("%w CPU times %q", errMalformed, clip(line))
		}
		times = append(times, CPUTime{
			CPU: cpu, User: v[0], Nice: v[1], System: v[2], Idle: v[3], IOWait: v[4],
			IRQ: v[5], SoftIRQ: v[6], Steal: v[7], Guest: v[8],
		})
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("%w CPU times: no CPU in them", errMalformed)
	}
	return times, nil
}

// OnlineCPUs returns the numbers of the CPUs that run now.
func (f FS) OnlineCPUs() (cpus []int, err error) {
	err = read(f.sys()+"/devices/system/cpu/online", func(data []byte) (err error) {
		cpus, err = ParseCPUList(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	return cpus, nil
}

// ParseCPUList parses a list as in "0-3,8\n", ascending.
func ParseCPUList(data []byte) (cpus []int, err error) {
	malformed := fmt.Errorf("%w list of CPUs %q", errMalformed, clip(data))
	for part := range bytes.SplitSeq(bytes.TrimSuffix(data, []byte{'\n'}), []byte{','}) {
		low, high, isRange := bytes.Cut(part, []byte{'-'})
		first, err := strconv.ParseUint(string(low), 10, 16)
		if err != nil {
			return nil, malformed
		}
		last := first
		if isRange {
			if last, err = strconv.ParseUint(string(high), 10, 16); err != nil {
				return nil, malformed
			}
		}
		if last < first || last >= maxCPUs || len(cpus) > 0 && int(first) <= cpus[len(cpus)-1] {
			return nil, malformed
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
