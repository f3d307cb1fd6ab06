// Package agent watches one machine, always: it cuts windows by the clock, keeps them on disk, and ships them.
//
//	sampler.Cut -> split by target (split.go, identify.go) -> wire.Seal -> spool
//	   -> a batch -> Push -> acknowledged, only then forgotten (ship.go)
//
// Cutting never waits for shipping: a server that is gone for hours costs what
// the spool's limit costs, and nothing else.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Options say what to watch and where it goes. First, Jitter, Now, Rand and Log
// may be left out.
type Options struct {
	Node    string          // what this machine is called
	Task    string          // what the windows are of
	Sampler sampler.Sampler // of the whole machine, its threads apart; closed by whoever opened it
	Spool   *spool.Spool
	Intake  Intake
	Window  time.Duration
	First   time.Duration // the first window ends so soon, if it is not 0: somebody waits for it
	Jitter  time.Duration // windows are shipped at a random time within it

	Now  func() time.Time
	Rand *mathrand.Rand
	Log  *slog.Logger
}

// Intake is where windows go: a server, a relay, or the server of this process.
type Intake interface {
	Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error)
}

// Agent watches until its context ends.
type Agent struct {
	options    Options
	log        *slog.Logger
	run        profile.Run
	identities *identities
	shipper    *shipper
}

// New prepares an agent.
func New(o Options) (*Agent, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64()))
	}
	if o.Window <= 0 {
		return nil, fmt.Errorf("windows of %v: they must be longer than nothing", o.Window)
	}
	a := &Agent{options: o, log: o.Log, identities: newIdentities(o.Node), shipper: newShipper(o)}
	if _, err := rand.Read(a.run[:]); err != nil {
		return nil, fmt.Errorf("name this run: %w", err)
	}
	return a, nil
}

// Run cuts and ships until the context ends. Then the last window is cut, and
// what can be shipped within a moment is; the rest waits in the spool.
func (a *Agent) Run(ctx context.Context) error {
	shipping, stop := context.WithCancel(context.WithoutCancel(ctx))
	shipped := make(chan struct{})
	go func() {
		defer close(shipped)
		a.shipper.run(shipping)
	}()
	err := a.cutUntil(ctx)
	const farewell = 2 * time.Second
	last := time.AfterFunc(farewell, stop)
	a.shipper.finish()
	<-shipped
	last.Stop()
	stop()
	return err
}

// cutUntil cuts a window at each edge, and one at the end.
func (a *Agent) cutUntil(ctx context.Context) error {
	first := a.options.First
	for {
		wait := untilEdge(a.options.Now(), a.options.Window)
		if first > 0 {
			wait, first = min(wait, first), 0
		}
		edge := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			edge.Stop()
			return a.cut()
		case <-edge.C:
			if err := a.cut(); err != nil {
				return err
			}
		}
	}
}

// cut ends the window and spools what it holds. A spool that cannot take it
// does not end the agent: the windows are shipped from memory, once.
func (a *Agent) cut() error {
	w, err := a.options.Sampler.Cut()
	if err != nil {
		return fmt.Errorf("cut a window: %w", err)
	}
	w.Task = a.options.Task
	w.ClockOffset, w.ClockError = a.shipper.clock()
	var records [][]byte
	for _, part := range split(w, a.identities.of(w.Threads), a.identities.machine()) {
		data, err := proto.Marshal(wire.Seal(part, a.run))
		if err != nil {
			return fmt.Errorf("seal the window of %v: %w", part.Target, err)
		}
		records = append(records, data)
	}
	if len(records) == 0 {
		return nil
	}
	if _, err := a.options.Spool.Add(records); err != nil {
		a.log.Error("spool windows", "windows", len(records), "error", err)
		a.shipper.direct(records)
		return nil
	}
	a.shipper.wake()
	return nil
}

// errRefused says that the receiver will never take what it was sent.
var errRefused = errors.New("refused for good")
