package proc

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// IdleTime is how long all CPUs together have been idle since the machine
// started, waiting for disks included, in steps of 10 ms each.
func (f FS) IdleTime() (idle time.Duration, err error) {
	err = read(f.root()+"/stat", func(data []byte) (err error) {
		idle, err = ParseIdle(data)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read idle time: %w", err)
	}
	return idle, nil
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
func (f FS) MaxSampleRate() (hz int, err error) {
	err = read(f.root()+"/sys/kernel/perf_event_max_sample_rate", func(data []byte) (err error) {
		hz, err = strconv.Atoi(string(bytes.TrimSpace(data)))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the most samples that are allowed: %w", err)
	}
	return hz, nil
}
