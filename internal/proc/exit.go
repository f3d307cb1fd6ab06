package proc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is how often a wait looks whether it was cancelled.
const lookAgain = 500 * time.Millisecond

// AwaitExit waits until all of these processes have exited, collected by their
// parents or not, or until the context ends, whose error it then returns. The
// kernel tells: nobody wakes up in between to look.
func AwaitExit(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		if err := awaitExit(ctx, pid); err != nil {
			return err
		}
	}
	return nil
}

func awaitExit(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := retry(func() (int, error) { return unix.Poll(fds, int(lookAgain.Milliseconds())) })
		switch {
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
