package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// sparingFS does not read again what was found damaged. Pebble tries of a block
// whose checksum is wrong whether any one bit of it fell over, which takes seconds
// each time: a question that meets the block a hundred times would take minutes.
type sparingFS struct {
	vfs.FS

	mu      sync.Mutex
	damaged map[blockPlace]bool
}

// blockPlace is where in a table a block begins.
type blockPlace struct {
	table  string
	offset int64
}

// inBlock is how Pebble says where it found the damage.
var inBlock = regexp.MustCompile(`\bblock (\d+)/\d+: \S+ checksum mismatch`)

// errDamagedBlock is what reads give of a block that is known.
var errDamagedBlock = fmt.Errorf("%w: of a block that is known to be damaged", pebble.ErrCorruption)

// learn remembers what is damaged, and tells whether that is news.
func (s *sparingFS) learn(i pebble.DataCorruptionInfo) bool {
	at := inBlock.FindStringSubmatch(fmt.Sprint(i.Details))
	if at == nil {
		return !strings.Contains(fmt.Sprint(i.Details), errDamagedBlock.Error())
	}
	offset, err := strconv.ParseInt(at[1], 10, 64)
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged == nil {
		s.damaged = map[blockPlace]bool{}
	}
	s.damaged[blockPlace{filepath.Base(i.Path), offset}] = true
	return true
}

func (s *sparingFS) known(p blockPlace) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged[p]
}

// Open opens a file, of which blocks are read if it is a table.
func (s *sparingFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := s.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return &sparedFile{file, s, filepath.Base(name)}, nil
}

type sparedFile struct {
	vfs.File
	of   *sparingFS
	name string
}

func (f *sparedFile) ReadAt(p []byte, offset int64) (int, error) {
	if f.of.known(blockPlace{f.name, offset}) {
		return 0, errDamagedBlock
	}
	return f.File.ReadAt(p, offset)
}

// lost are parts that could not be read. What belongs together is read once for
// each kind of values, and they are met each time.
type lost map[lostPart]bool

// lostPart is a window, or a stretch of a series, whose task, kind and run are unknown.
type lostPart struct {
	series     uint32
	start      int64
	task, kind string
	run        profile.Run
}

// untold are parts of which there is no window that could tell that they were lost.
type untold struct {
	labels profile.Labels
	task   string
	parts  lost
}

// of are those of a task, or that may be.
func (l lost) of(task string) lost {
	some := lost{}
	for part := range l {
		if part.task == task || part.task == "" {
			some[part] = true
		}
	}
	return some
}

// leave notes what was met of tasks of which there is no window. A stretch may be of
// any task: each that there is tells it.
func (r *roller) leave(labels profile.Labels, tasks map[string]bool) {
	of := map[string]lost{}
	for part := range r.met {
		if tasks[part.task] || part.task == "" && len(tasks) > 0 {
			continue
		}
		if of[part.task] == nil {
			of[part.task] = lost{}
		}
		of[part.task][part] = true
	}
	for task, parts := range of {
		r.untold = append(r.untold, untold{labels, task, parts})
	}
}

// lose notes that something of a series cannot be read.
func (r *roller) lose(of *series, f *found, err error) {
	part := lostPart{of.number, f.start.UnixNano(), f.task, f.kind, f.run}
	r.lost[part] = true
	if !r.all[part] {
		r.all[part] = true
		r.cursor.log(of, f.start, err)
	}
}

// tell keeps windows of none that say what was lost of series, or of a service, of
// which nothing can be read. Which kinds of values that had nobody knows: it may be
// any that others have, or the one that every agent takes.
func (r *roller) tell(ctx context.Context) error {
	if len(r.types) == 0 {
		r.types["cpu"] = profile.CPUTime(0)
	}
	for _, u := range r.untold {
		for kind, t := range r.types {
			r.window, r.watched, r.grouped = emptyWindow(u.labels, t), 0, r.step.Level.Services()
			r.lost = u.parts
			if err := r.finish(measured{u.task, kind}); err != nil {
				return err
			}
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func emptyWindow(labels profile.Labels, t profile.ValueType) store.Window {
	return store.Window{Series: labels, Head: profile.Head{Types: []profile.ValueType{t}}, Scales: []int64{1}}
}

// stays tells whether what was added up before, of more windows than can be read
// now, stays as it is.
func (r *roller) stays(at key) (bool, error) {
	if len(r.lost) == 0 {
		return false, nil
	}
	value, err := r.shelf.db.value(at)
	if err != nil || value == nil {
		return false, err
	}
	before, ok := codec.DecodeWindow(value)
	return ok && before.Of > r.window.Of, nil
}

// pace has long work leave the processors to those whose windows come meanwhile:
// they wait for an answer, and nobody waits for what is added up.
type pace struct {
	puts  *atomic.Uint64 // that came so far
	began time.Time      // of work without a rest
	seen  uint64         // puts by then
}

// stint is how long is worked before a rest.
const stint = 10 * time.Millisecond

func (p *pace) work() { p.began, p.seen = time.Now(), p.puts.Load() }

// rest rests for as long as there was work, once that was a stint, if something
// came meanwhile.
func (p *pace) rest(ctx context.Context) error {
	worked := time.Since(p.began)
	if worked < stint {
		return nil
	}
	if p.puts.Load() != p.seen {
		select {
		case <-time.After(worked):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.work()
	return nil
}
