package external

import (
	"os/exec"
	"testing"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/test/testwait"
)

func TestTimeOfTheGoneIsCountedOnce(t *testing.T) {
	family := map[int]spent{10: {parent: 1}, 11: {parent: 10}, 12: {parent: 11}, 20: {parent: 99}, 30: {parent: 31}, 31: {parent: 30}}
	now := map[int]spent{10: {}}
	for _, c := range []struct {
		name string
		pid  int
		want bool
	}{
		{"a child", 11, true},
		{"a child's child, both gone at once", 12, true},
		{"one whose parent is a stranger", 20, false},
		{"the first", 10, false},
		{"a circle, of numbers used again", 30, false},
	} {
		u := &usage{children: true, family: family}
		if got := u.inherited(family[c.pid], now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if u := (&usage{family: family}); u.inherited(family[11], now) {
		t.Error("a child's time counts where children are not looked at")
	}
}

// Children that end, and theirs, are counted once, and no more than the kernel
// says all have used together.
func TestUsageOfChildren(t *testing.T) {
	const burn = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`
	cmd := exec.Command("sh", "-c", `read go; sh -c 'sh -c "$0"; :' "$0"; read end`, burn)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u := watchUsage(proc.FS{}, []int{cmd.Process.Pid}, true)
	defer u.close()
	u.cut()
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testwait.Longest(t)); ; time.Sleep(20 * time.Millisecond) { // until all children have ended
		if s, err := (proc.FS{}).Stat(cmd.Process.Pid); err == nil && s.ChildrenUser > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no child has ended")
		}
	}
	got := u.cut().CPU
	in.Close()
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 { // read finds no line
		t.Fatal(err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	const ticks = 40 * time.Millisecond // children's time is in steps of 10 ms, of each part
	if got > used+ticks || got < used-ticks {
		t.Errorf("%v, the kernel says %v", got, used)
	}
}
