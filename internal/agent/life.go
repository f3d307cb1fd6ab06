package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"atys.dev/atys/internal/spool"
)

// life is a file that exists while an agent runs. An agent that finds it knows that the one before
// was killed, and reports what that one held: the kernel tells nobody whom it kills for memory.
type life struct {
	name   string // "": there is none
	log    *slog.Logger
	file   sync.Mutex // held while it is written
	last   string     // how the one before ended, if not as it should
	before lived      // what the one before held when it last noted that
}

// lived is what the file holds.
type lived struct {
	At     time.Time `json:"at"`
	Memory int64     `json:"memoryBytes"`
	Open   int       `json:"openWindows,omitempty"` // of tiny targets, which went on beyond their cut
}

func newLife(name string, log *slog.Logger) *life {
	l := &life{name: name, log: log}
	if name == "" {
		return l
	}
	data, err := os.ReadFile(name)
	switch before := &l.before; {
	case errors.Is(err, fs.ErrNotExist):
		return l
	case err != nil || json.Unmarshal(data, before) != nil:
		l.last = "it was killed"
	default:
		l.last = "it was killed after " + before.At.UTC().Format(time.RFC3339) + ", when it held " + megabytes(before.Memory)
	}
	log.Warn("the previous run was killed, perhaps for memory", "at", l.before.At, "bytes", l.before.Memory)
	return l
}

// settle counts, once, the windows that the agent before had in memory when it was killed. It
// counts too many if some were spooled after the last note.
func (l *life) settle(lose func(spool.Losses)) {
	if l.before.Open == 0 {
		return
	}
	lose(spool.Losses{Unkept: l.before.Open})
	l.before.Open = 0
	l.write(l.before)
}

// noteSoon is note without waiting for the disk. One that is under way is enough.
func (l *life) noteSoon(u Usage, open int) {
	if !l.file.TryLock() {
		return
	}
	go func() {
		defer l.file.Unlock()
		l.note(u, open)
	}()
}

// note writes what is held now: memory, and windows that go on beyond their cut.
func (l *life) note(u Usage, open int) {
	if l.name != "" {
		l.write(lived{time.Now(), u.Memory, open})
	}
}

func (l *life) write(held lived) {
	data, err := json.Marshal(held)
	if err == nil {
		err = os.WriteFile(l.name, data, 0o600)
	}
	if err != nil {
		l.log.Debug("note that the agent lives", "error", err)
	}
}

// end says that it ended as it should.
func (l *life) end() {
	l.file.Lock()
	defer l.file.Unlock()
	if l.name == "" {
		return
	}
	if err := os.Remove(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Debug("note that the agent ended", "error", err)
	}
}
