package recorder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Until the first unwinding tables are loaded stacks end early. On a machine
// whose CPUs are all busy that takes three times as long as the work in it: so
// we go before others for the first second, and are one among them after that.
const (
	hurryFor  = time.Second
	hurryNice = -10
)

// hurry raises this process's priority for a moment, where that is permitted,
// and gives what ends it at once. Programs started meanwhile would keep it:
// start none.
func hurry() (end func(), err error) {
	usual, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return nil, fmt.Errorf("read priority: %w", err)
	}
	nice := 20 - usual // as the system call encodes it
	if nice <= hurryNice {
		return func() {}, nil
	}
	if err := setNice(hurryNice); err != nil {
		return nil, errors.Join(fmt.Errorf("raise priority: %w", err), setNice(nice))
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-stop:
		case <-time.After(hurryFor):
		}
		_ = setNice(nice) // to lower one's priority is always permitted
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-done
	}), nil
}

// setNice sets the niceness of all threads of this process. A new one has that
// of its creator, so it goes on until none is found that has another.
func setNice(nice int) error {
	for changed := true; changed; {
		changed = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			has, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
			if err != nil || 20-has == nice {
				continue // gone, or as it should be
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			changed = true
		}
	}
	return nil
}
