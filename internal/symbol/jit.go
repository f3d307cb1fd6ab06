package symbol

import (
	"errors"
	"os"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// JIT names code that a process compiled while running, by whatever its runtime
// writes for perf: a dump, which has lines, else a map. It is not safe for
// concurrent use.
type JIT struct {
	pid  int
	dump *JITDump
	list *PerfMap
}

// NewJIT reads nothing yet.
func NewJIT(pid int) *JIT { return &JIT{pid: pid, list: PerfMapOf(pid)} }

// Refresh reads what the runtime has written since the last time.
func (j *JIT) Refresh() error {
	var err error
	if j.dump == nil {
		if j.dump, err = FindJITDump(proc.FS{}, "/proc", j.pid); err != nil {
			j.dump = nil
		}
	}
	if j.dump != nil {
		err = j.dump.Refresh()
	} else if errors.Is(err, errNoDump) {
		err = nil
	}
	if listErr := j.list.Refresh(); !errors.Is(listErr, os.ErrNotExist) {
		err = errors.Join(err, listErr)
	}
	return err
}

// Frame names an address, as of the last Refresh.
func (j *JIT) Frame(address uint64) (profile.Frame, bool) {
	if j.dump != nil {
		if f, ok := j.dump.Frame(address); ok {
			return f, true
		}
	}
	return j.list.Frame(address)
}
