package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// life is a file that is there while an agent runs: one that finds it was killed
// before, and tells what it held then. Nobody tells who is killed for memory.
type life struct {
	name string // "": there is none
	log  *slog.Logger
	file sync.Mutex // held while it is written
	last string     // how the one before ended, if not as it should
}

// lived is what the file holds.
type lived struct {
	At     time.Time `json:"at"`
	Memory int64     `json:"memoryBytes"`
}

func newLife(name string, log *slog.Logger) *life {
	l := &life{name: name, log: log}
	if name == "" {
		return l
	}
	data, err := os.ReadFile(name)
	var before lived
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l
	case err != nil || json.Unmarshal(data, &before) != nil:
		l.last = "it was killed"
	default:
		l.last = "it was killed after " + before.At.UTC().Format(time.RFC3339) + ", when it held " + megabytes(before.Memory)
	}
	log.Warn("the previous run was killed, perhaps for memory", "at", before.At, "bytes", before.Memory)
	return l
}

// noteSoon is note without waiting for the disk. One that is under way is enough.
func (l *life) noteSoon(u Usage) {
	if !l.file.TryLock() {
		return
	}
	go func() {
		defer l.file.Unlock()
		l.note(u)
	}()
}

// note says what is held now.
func (l *life) note(u Usage) {
	if l.name == "" {
		return
	}
	data, err := json.Marshal(lived{time.Now(), u.Memory})
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
