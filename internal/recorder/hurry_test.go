package recorder

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// niceness gives the niceness of each thread of this process.
func niceness(t *testing.T) map[int]int {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]int{}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if has, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
			all[tid] = 20 - has
		}
	}
	return all
}

// All threads hurry, and none does afterwards.
func TestHurry(t *testing.T) {
	before := niceness(t)[os.Getpid()]
	end, err := hurry()
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		t.Skip("needs root or CAP_SYS_NICE")
	}
	if err != nil {
		t.Fatal(err)
	}
	for tid, nice := range niceness(t) {
		if nice > hurryNice {
			t.Errorf("thread %d has niceness %d while we hurry", tid, nice)
		}
	}
	end()
	for tid, nice := range niceness(t) {
		if nice != before {
			t.Errorf("thread %d has niceness %d, not %d again", tid, nice, before)
		}
	}
}
