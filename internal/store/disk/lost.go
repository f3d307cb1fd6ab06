package disk

import (
	"context"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

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
	before, ok := decodeWindow(value)
	return ok && before.Of > r.window.Of, nil
}
