package background

import (
	"context"

	"atys.dev/atys/test/victims"
)

// Idle are processes that hardly do anything. They end with the context they were
// started with.
type Idle []*victims.Victim

// StartIdle builds the program in a directory, and starts it count times. What was
// started is returned beside an error, too.
func StartIdle(ctx context.Context, dir string, count int) (all Idle, err error) {
	path, err := victims.Build(dir, "idle", victims.Options{})
	if err != nil {
		return nil, err
	}
	for range count {
		v, err := victims.Start(ctx, path, "36000", "1")
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Wait waits for all of them; they were killed, so no status says anything.
func (all Idle) Wait() {
	for _, v := range all {
		_, _ = v.Wait()
	}
}
