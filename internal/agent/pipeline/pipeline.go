// Package pipeline turns what recordings cut into records on disk, apart from whatever keeps time.
//
//	Add -> queue of each line -> prune -> symbolize -> refine -> split -> seal -> spool -> Line.Delivered
//
// Each stage is a goroutine. Add never waits: where the queue of a line is full, its next
// window is merged into the one that waits, and counted (Merged). So a download of debug
// information, or a slow disk, makes windows longer and later, and loses none.
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
	Rules     []refine.Rule
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

	waiting []*Piece // guarded by the pipeline's mutex

	// Of the stage that splits alone:
	balances balances
	parts    [][]*profile.Window // of the window that is not complete yet, a slice per cut
	extent   *profile.Head       // their time; nil: each has its own
}

// Delivery is what became of a window: its targets' parts are safe in the spool, or
// handed to Options.Unspooled.
type Delivery struct {
	Windows int // that were cut, if some were merged into one
	Parts   []*profile.Window
	Summary health.Summary
	Bundle  spool.ID     // 0: there was nothing to spool
	Unspent profile.Cost // what no part carries, since there is none
}

// mostWaiting is how many pieces of a line wait for the first stage. A piece of a busy
// machine can have a megabyte.
const mostWaiting = 4

// Pipeline runs the stages. Use New.
type Pipeline struct {
	options Options
	stages  sync.WaitGroup
	work    context.Context // ends when names are no longer waited for
	giveUp  context.CancelFunc

	mu     sync.Mutex // guards all below, and what waits in lines
	more   *sync.Cond // the queue is not empty, or closed
	queue  []*Line    // a line for each piece that waits, oldest first
	closed bool
	merged uint64
}

// New prepares a pipeline, which does nothing until Start.
func New(o Options) *Pipeline {
	p := &Pipeline{options: o}
	p.more = sync.NewCond(&p.mu)
	return p
}

// Start starts the stages. They go on until Finish, also when the context has ended;
// it only carries values.
func (p *Pipeline) Start(ctx context.Context) {
	p.work, p.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	pieces := make(chan *job)
	p.stages.Go(func() { p.feed(pieces) })
	pruned := p.stage(pieces, p.prune)
	named := p.stage(pruned, p.symbolize)
	refined := p.stage(named, p.refine)
	split := p.stage(refined, p.split)
	sealed := p.stage(split, p.seal)
	p.stage(sealed, p.spool)
}

// stage starts a goroutine that passes on jobs for which do returns true.
func (p *Pipeline) stage(in <-chan *job, do func(*job) bool) <-chan *job {
	out := make(chan *job, 1)
	p.stages.Go(func() {
		defer close(out)
		defer p.options.Account.Begin(cputime.Shipping)()
		for j := range in {
			if do(j) {
				out <- j
			}
		}
	})
	return out
}

// feed hands pieces to the first stage, those of all lines in the order in which they came.
func (p *Pipeline) feed(out chan<- *job) {
	defer close(out)
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.closed {
			p.more.Wait()
		}
		if len(p.queue) == 0 {
			p.mu.Unlock()
			return
		}
		l := p.queue[0]
		p.queue = p.queue[1:]
		piece := l.waiting[0]
		l.waiting = l.waiting[1:]
		p.mu.Unlock()
		out <- &job{line: l, Piece: piece}
	}
}

// Add queues a piece, which the pipeline owns from then on. It never waits.
func (p *Pipeline) Add(l *Line, piece *Piece) {
	if piece.Ends != nil {
		piece.windows = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(l.waiting); n >= mostWaiting {
		if l.waiting[n-1].absorb(piece) {
			p.merged++
			p.options.Log.Warn("merge a window into the one before it: naming and the disk do not keep up", "task", l.Task)
		}
		return
	}
	l.waiting = append(l.waiting, piece)
	p.queue = append(p.queue, l)
	p.more.Signal()
}

// Merged returns how many windows were merged into the ones before them, since those
// still waited.
func (p *Pipeline) Merged() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.merged
}

// Finish has all that was added come through, and closes done then. Names are waited for
// no longer than patience: then windows are kept without.
func (p *Pipeline) Finish(patience time.Duration) (done <-chan struct{}) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.more.Signal()
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
