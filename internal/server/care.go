package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
)

// What operators look after a store by, all of it: of the server's own tenant.
// Answers are read as they come.
const (
	carePath   = "/store/"
	StatPath   = carePath + "stat"   // GET: disk.Statistics as JSON
	CheckPath  = carePath + "check"  // GET: a Checked a line; the last one is done
	BackupPath = carePath + "backup" // GET: a tar (package backup)
)

// Checked is a thing that is damaged, or that all was read.
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

// care is what is looked after now: one thing at a time, for each reads all there
// is, and a snapshot has the disk keep what is deleted meanwhile.
type care struct{ busy sync.Mutex }

func (s *Server) lookAfter(mux *routes) {
	for path, answer := range map[string]func(http.ResponseWriter, *http.Request, keeper){
		StatPath: s.statStore, CheckPath: s.checkStore, BackupPath: s.backUp,
	} {
		mux.Handle("GET "+path, s.ownOnly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k, ok := s.options.Store.(keeper)
			if !ok {
				http.Error(w, "this server's store is on no disk of its own", http.StatusNotImplemented)
				return
			}
			if !s.care.busy.TryLock() {
				http.Error(w, "the store is being counted, checked or backed up already: ask again later", http.StatusConflict)
				return
			}
			defer s.care.busy.Unlock()
			answer(w, r, k)
		})))
	}
}

func (s *Server) statStore(w http.ResponseWriter, r *http.Request, k keeper) {
	stat, err := k.Stat(r.Context())
	if err != nil {
		s.log.Error("count what is kept", "error", err)
		http.Error(w, "count what is kept: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answerJSON(w, stat)
}

func (s *Server) checkStore(w http.ResponseWriter, r *http.Request, k keeper) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	tell := func(c Checked) {
		_ = lines.Encode(c)                       // whoever asked is gone if this fails: the context ends
		_ = http.NewResponseController(w).Flush() // or it comes later
	}
	if err := k.Check(r.Context(), func(problem string) { tell(Checked{Problem: problem}) }); err != nil {
		s.log.Error("check what is kept", "error", err)
		tell(Checked{Error: err.Error()})
		return
	}
	tell(Checked{Done: true})
}

// backUp sends a backup. One that fails half way is cut off, so that nobody takes
// it for whole.
func (s *Server) backUp(w http.ResponseWriter, r *http.Request, k keeper) {
	began := s.now()
	dir, done, err := k.Snapshot()
	if err != nil {
		s.log.Error("back the store up", "error", err)
		status := http.StatusInternalServerError
		if errors.Is(err, store.ErrFull) {
			status = http.StatusInsufficientStorage
		}
		http.Error(w, "the server's disk: "+err.Error(), status)
		return
	}
	defer func() {
		if err := done(); err != nil {
			s.log.Error("remove what was backed up", "directory", dir, "error", err)
		}
	}()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", `attachment; filename="atys-backup.tar"`)
	if err := backup.Write(r.Context(), w, backup.Source{Store: dir, Profiles: s.options.Profiles, Made: began}); err != nil {
		s.log.Error("send a backup", "error", err)
		panic(http.ErrAbortHandler)
	}
	s.log.Info("the store was backed up", "took", s.now().Sub(began).Round(time.Millisecond).String())
}
