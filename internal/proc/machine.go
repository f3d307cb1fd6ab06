package proc

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// Machine reads what the kernel counts for the machine as a whole. The zero value reads
// this one.
type Machine struct {
	Proc string // "" is /proc
	Sys  string // "" is /sys
}

// IdleTime is how long all CPUs together have been idle since the machine
// started, waiting for disks included, in steps of 10 ms each.
func (m Machine) IdleTime() (time.Duration, error) {
	return readAs("idle time", cmp.Or(m.Proc, "/proc")+"/stat", ParseIdle)
}

// ParseIdle reads the idle time of all CPUs from the first line of /proc/stat:
// "cpu  user nice system idle iowait irq ...", in ticks.
func ParseIdle(data []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	rest, ok := bytes.CutPrefix(line, []byte("cpu  "))
	if !ok {
		return 0, fmt.Errorf("%w stat %q", errMalformed, clip(line))
	}
	sc := scanner{rest: rest}
	for range 3 { // user, nice, system
		sc.decimal(' ')
	}
	idle, waiting := sc.decimal(' '), sc.decimal(' ')
	const most = uint64(1<<62) / uint64(userTick)
	if sc.bad || idle > most || waiting > most {
		return 0, fmt.Errorf("%w stat %q", errMalformed, clip(line))
	}
	return time.Duration(idle+waiting) * userTick, nil
}

// MaxSampleRate is how many samples a second the kernel takes of one event;
// faster ones it throttles.
func (m Machine) MaxSampleRate() (int, error) {
	return readAs("the most samples that are allowed", cmp.Or(m.Proc, "/proc")+"/sys/kernel/perf_event_max_sample_rate", func(data []byte) (int, error) {
		return strconv.Atoi(string(bytes.TrimSpace(data)))
	})
}

// CPUTime is how one CPU spent its time since boot, in steps of 10 ms. Guest
// time is part of User and Nice.
type CPUTime struct {
	CPU                                                          int
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal, Guest time.Duration
}

// CPUTimes returns how each online CPU spent its time.
func (m Machine) CPUTimes() ([]CPUTime, error) {
	return readAs("CPU times", cmp.Or(m.Proc, "/proc")+"/stat", ParseCPUTimes)
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
func (m Machine) OnlineCPUs() ([]int, error) {
	return readAs("online CPUs", cmp.Or(m.Sys, "/sys")+"/devices/system/cpu/online", ParseCPUList)
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
