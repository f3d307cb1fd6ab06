package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

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
