package recorder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/sampler/external"
)

// External is a recording by another profiler.
type External struct {
	sampler *external.Sampler
	window  time.Duration
	pruning float64
}

// programPatience is how long a command may take to become a program that its profiler knows.
const programPatience = 10 * time.Second

// StartExternal starts another profiler. Early says that the targets have only just been
// started, so that it may take a while until the profiler knows them. The end of ctx ends
// the start, but not the profiler: what it recorded is to be written.
func StartExternal(ctx context.Context, o external.Options, pruning float64, early bool) (*External, error) {
	e := &External{window: externalWindow(o.Kernel), pruning: pruning}
	o.Longest = e.window
	toolCtx, kill := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, kill)
	deadline := time.Now().Add(programPatience)
	for {
		var err error
		if e.sampler, err = external.New(toolCtx, o); err == nil {
			stop()
			return e, nil
		}
		if early && ctx.Err() != nil {
			kill()
			return nil, fmt.Errorf("the command ended before %s had found it to be a program it records", o.Kernel)
		}
		if !early || errors.Is(err, external.ErrConsent) || errors.Is(err, external.ErrNotInstalled) || time.Now().After(deadline) {
			kill()
			return nil, err
		}
		select {
		case <-ctx.Done():
			kill()
			return nil, fmt.Errorf("the command ended before %s could record it: %w", o.Kernel, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// externalWindow is how long one run of another profiler lasts, since its memory and
// files grow with it. perf's files grow fastest.
func externalWindow(k external.Kernel) time.Duration {
	if k == external.Perf {
		return 10 * time.Second
	}
	return time.Minute
}

// Record gathers windows until the context ends, the targets have ended, or for the
// duration if it is not zero, as Recorder.Record does.
func (e *External) Record(ctx context.Context, duration time.Duration, progress func(*profile.Window)) (*profile.Window, error) {
	cut := func(last bool) (*profile.Window, error) {
		if last {
			return e.sampler.Finish()
		}
		return e.sampler.Cut()
	}
	whole, err := gathering{duration: duration, every: e.window, cut: cut, ended: e.sampler.Done(), progress: progress}.run(ctx)
	if whole != nil && e.pruning > 0 {
		prune.Window(whole, e.pruning, nil)
	}
	return whole, err
}

// Close ends the recording.
func (e *External) Close() error { return e.sampler.Close() }
