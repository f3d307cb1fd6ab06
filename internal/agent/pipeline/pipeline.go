// Package pipeline turns what recordings cut into records on disk, apart from whatever keeps time.
//
//	Add -> queue -> identify -> queue -> prune -> symbolize -> refine -> split -> seal -> spool -> Line.Delivered
//
// Each stage is a goroutine. Add never waits, nor does it merge: where a queue has no more
// room for a line, the queue merges its next window into the one that waits, and counts it
// (Merged). So a slow /proc, a download of debug information, or a slow disk makes windows
// longer and later, and loses none. Processes are identified apart from what follows, since
// they may end while names are waited for.
package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
)

// Options of a Pipeline. Functions and Account may be nil.
type Options struct {
	Run       profile.Run
	Machine   profile.Labels // the target of what belongs to no process
	Rules     refine.Rules
	Spool     *spool.Spool
	Unspooled func(id spool.ID, records [][]byte) // takes the records that the disk does not
	Functions *promexport.Functions
	Account   *cputime.Account
	Now       func() time.Time
	Log       *slog.Logger
}

// Line is the stream of one recording's windows. They stay in order.
type Line struct {
	Task    string
	Threads spec.Threads
	Pruning float64 // percent of the samples whose threads are kept; 0: all
	Top     int     // functions of each target for Options.Functions

	// Delivered is called with each window that has come through, in the goroutine of
	// the last stage.
	Delivered func(Delivery)

	// Of the stage that splits alone:
	balances balances
	parts    [][]*profile.Window // of the window that is not complete yet, a slice per cut
	extent   *profile.Head       // their time; nil: each has its own
	some     bool                // a cut of it kept some targets only
	brief    int                 // targets in them that are of short-lived commands only
	tiny     longer              // windows of tiny targets that go on
	ended    profile.Head        // of the window that ended last
}

// Delivery is what became of a window: its targets' parts are safe in the spool, or
// handed to Options.Unspooled.
type Delivery struct {
	Windows int // that were cut, if some were merged into one
	Parts   []*profile.Window
	Summary health.Summary
	Brief   int          // targets that are of short-lived commands only, as if each were one
	Tiny    int          // targets with few samples, whose windows may go on
	Open    int          // those whose windows do
	Bundle  spool.ID     // 0: there was nothing to spool
	Unspent profile.Cost // what no part carries, since there is none
}

// Pipeline runs the stages. Use New.
type Pipeline struct {
	options Options
	stages  sync.WaitGroup
	work    context.Context // ends when names are no longer waited for
	giveUp  context.CancelFunc

	added, identified *queue         // what waits for its targets, and what has them
	lines             map[*Line]bool // of the stage that splits alone: those with windows of tiny targets that go on
}

// New prepares a pipeline, which does nothing until Start.
func New(o Options) *Pipeline {
	return &Pipeline{options: o, added: newQueue(), identified: newQueue(), lines: map[*Line]bool{}}
}

// Start starts the stages. They go on until Finish, also when the context has ended;
// it only carries values.
func (p *Pipeline) Start(ctx context.Context) {
	p.work, p.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	for _, q := range []*queue{p.added, p.identified} {
		p.stages.Go(func() { q.shorten(&p.options) })
	}
	p.stages.Go(p.identify)
	pieces := make(chan *job)
	p.stages.Go(func() { p.feed(pieces) })
	pruned := p.stage(pieces, p.prune, nil)
	named := p.stage(pruned, p.symbolize, nil)
	refined := p.stage(named, p.refine, nil)
	split := p.stage(refined, p.split, p.rest)
	sealed := p.stage(split, p.seal, nil)
	p.stage(sealed, p.spool, nil)
}

// stage starts a goroutine that passes on jobs for which do returns true, and after the last
// one what rest returns.
func (p *Pipeline) stage(in <-chan *job, do func(*job) bool, rest func() []*job) <-chan *job {
	out := make(chan *job, 1)
	p.stages.Go(func() {
		defer close(out)
		defer p.options.Account.Begin(cputime.Shipping)()
		for j := range in {
			if do(j) {
				out <- j
			}
		}
		if rest == nil {
			return
		}
		for _, j := range rest() {
			out <- j
		}
	})
	return out
}

// feed hands pieces that have their targets to the stages that follow.
func (p *Pipeline) feed(out chan<- *job) {
	defer close(out)
	for {
		line, piece := p.identified.take()
		if piece == nil {
			return
		}
		out <- &job{line: line, Piece: piece}
	}
}

// Add queues a piece, which the pipeline owns from then on. It waits for nothing.
func (p *Pipeline) Add(l *Line, piece *Piece) {
	if piece.Ends != nil {
		piece.windows = 1
	}
	p.added.put(l, piece)
}

// Merged returns how many windows were merged into the ones before them, since those
// still waited.
func (p *Pipeline) Merged() uint64 { return p.added.mergedSoFar() + p.identified.mergedSoFar() }

// Finish has all that was added come through, and closes done then. Targets and names are
// waited for no longer than patience: then windows are kept with what is known.
func (p *Pipeline) Finish(patience time.Duration) (done <-chan struct{}) {
	p.added.close()
	ended := make(chan struct{})
	timer := time.AfterFunc(patience, p.giveUp)
	go func() {
		defer close(ended)
		p.stages.Wait()
		timer.Stop()
		p.giveUp()
	}()
	return ended
}
