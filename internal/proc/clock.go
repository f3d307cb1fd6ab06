package proc

import (
	"fmt"
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
