package recorder

import (
	"context"
	"errors"
	"time"

	"atys.dev/atys/internal/profile"
)

// gathering cuts windows, and merges them.
type gathering struct {
	duration time.Duration // 0: until the context ends
	every    time.Duration
	due      func(now time.Time) bool                 // whether to cut, asked at each interval; nil: yes
	cut      func(last bool) (*profile.Window, error) // nothing is cut after the last
	ended    <-chan struct{}                          // closed when nothing is left to record; nil: never
	progress func(*profile.Window)                    // told each window; may be nil
}

// mergeAt bounds how many windows wait to be merged.
const mergeAt = 32

// run gathers until the context ends, the duration is over or nothing is left to record.
// It returns what was cut even if an error ends it, and nil if that is nothing.
func (g gathering) run(ctx context.Context) (*profile.Window, error) {
	var end <-chan time.Time
	if g.duration > 0 {
		timer := time.NewTimer(g.duration)
		defer timer.Stop()
		end = timer.C
	}
	ticker := time.NewTicker(g.every)
	defer ticker.Stop()
	var windows []*profile.Window
	for last := false; !last; {
		select {
		case <-ctx.Done():
			last = true
		case <-end:
			last = true
		case <-g.ended:
			last = true
		case now := <-ticker.C:
			if g.due != nil && !g.due(now) {
				continue
			}
		}
		w, err := g.cut(last)
		if err != nil {
			whole, mergeErr := mergeAll(windows)
			return whole, errors.Join(err, mergeErr)
		}
		if g.progress != nil {
			g.progress(w)
		}
		if windows = append(windows, w); len(windows) == mergeAt {
			if w, err = mergeAll(windows); err != nil {
				return w, err
			}
			windows = append(windows[:0], w)
		}
	}
	return mergeAll(windows)
}

func mergeAll(windows []*profile.Window) (*profile.Window, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	return profile.Merge(windows...)
}
