package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
)

// Paths of requests about the whole store, for operators of the server's own tenant.
// Answers are streams.
const (
	carePath   = "/store/"
	StatPath   = carePath + "stat"   // GET: disk.Statistics as JSON
	CheckPath  = carePath + "check"  // GET: lines of Checked; the last one has Done
	BackupPath = carePath + "backup" // GET: a tar (package backup)
)

// Checked is a damage that was found, or the end of a check.
type Checked struct {
	Problem string `json:"problem,omitempty"`
	Error   string `json:"error,omitempty"` // the rest could not be read
	Done    bool   `json:"done,omitempty"`
}

// keeper is a store on a disk of this machine.
type keeper interface {
	Stat(context.Context) (*disk.Statistics, error)
	Check(ctx context.Context, tell func(problem string)) error
	Snapshot() (dir string, done func() error, err error)
}

// care answers operators' requests about the store, one at a time: each reads the whole
// store, and a snapshot keeps deleted files on the disk.
type care struct {
	store    store.Store
	profiles string // directory; "": none
	now      func() time.Time
	log      *slog.Logger
	busy     sync.Mutex // held while a request is answered
}

// route routes the requests of those that ownOnly admits.
func (c *care) route(mux *routes, ownOnly func(http.Handler) http.Handler) {
	for path, answer := range map[string]func(http.ResponseWriter, *http.Request, keeper){
		StatPath: c.stat, CheckPath: c.check, BackupPath: c.backUp,
	} {
		mux.Handle("GET "+path, ownOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k, ok := c.store.(keeper)
			if !ok {
				http.Error(w, "this server's store is on no disk of its own", http.StatusNotImplemented)
				return
			}
			if !c.busy.TryLock() {
				http.Error(w, "the store is being counted, checked or backed up already: ask again later", http.StatusConflict)
				return
			}
			defer c.busy.Unlock()
			answer(w, r, k)
		})))
	}
}

func (c *care) stat(w http.ResponseWriter, r *http.Request, k keeper) {
	stat, err := k.Stat(r.Context())
	if err != nil {
		c.log.Error("count what is kept", "error", err)
		http.Error(w, "count what is kept: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answerJSON(w, stat)
}

func (c *care) check(w http.ResponseWriter, r *http.Request, k keeper) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	send := func(line Checked) {
		_ = lines.Encode(line)                    // the client is gone if this fails: the context ends
		_ = http.NewResponseController(w).Flush() // or it comes later
	}
	if err := k.Check(r.Context(), func(problem string) { send(Checked{Problem: problem}) }); err != nil {
		c.log.Error("check what is kept", "error", err)
		send(Checked{Error: err.Error()})
		return
	}
	send(Checked{Done: true})
}

// backUp sends a backup. If it fails half way the connection is broken off, so that the
// backup is not taken for complete.
func (c *care) backUp(w http.ResponseWriter, r *http.Request, k keeper) {
	began := c.now()
	dir, done, err := k.Snapshot()
	if err != nil {
		c.log.Error("back the store up", "error", err)
		status := http.StatusInternalServerError
		if errors.Is(err, store.ErrFull) {
			status = http.StatusInsufficientStorage
		}
		http.Error(w, "the server's disk: "+err.Error(), status)
		return
	}
	defer func() {
		if err := done(); err != nil {
			c.log.Error("remove what was backed up", "directory", dir, "error", err)
		}
	}()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", `attachment; filename="atys-backup.tar"`)
	if err := backup.Write(r.Context(), w, backup.Source{Store: dir, Profiles: c.profiles, Made: began}); err != nil {
		c.log.Error("send a backup", "error", err)
		panic(http.ErrAbortHandler)
	}
	c.log.Info("the store was backed up", "took", c.now().Sub(began).Round(time.Millisecond).String())
}
