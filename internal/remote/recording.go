package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

const (
	shipPatience   = 30 * time.Second // for agents to ship what they recorded
	answerPatience = 10 * time.Second // for the server to answer how a recording fares
	endPatience    = 5 * time.Second
	pollPause      = 250 * time.Millisecond
)

// Recording is a recording that the agents of a server make. The server's clock may
// differ from this machine's: times of windows are the server's, and waiting is timed
// here.
type Recording struct {
	Profile  *spec.Profile // that is applied for this recording only
	Patience time.Duration // how long after the end agents may take to ship

	control atysv1connect.ControlClient
	query   atysv1connect.QueryClient

	applied        time.Time // by this machine's clock
	created, until time.Time // by the server's
	status         *atysv1.ProfileStatus
	coverage       *atysv1.Coverage // of what was fetched
}

// NewRecording prepares a recording by a profile.
func NewRecording(client connect.HTTPClient, address string, p *spec.Profile) *Recording {
	return &Recording{Profile: p, Patience: shipPatience,
		control: atysv1connect.NewControlClient(client, address), query: atysv1connect.NewQueryClient(client, address)}
}

// Start has the agents start.
func (r *Recording) Start(ctx context.Context) error {
	text, err := json.Marshal(r.Profile)
	if err != nil {
		return err
	}
	response, err := r.control.Apply(ctx, &atysv1.ApplyRequest{Objects: []string{string(text)}})
	if err != nil {
		return err
	}
	r.applied = time.Now()
	if err := r.readStatus(response.GetObjects()); err != nil {
		return err
	}
	if r.status.GetUntilUnixNano() == 0 {
		return errors.New("the server does not tell when the recording ends")
	}
	r.created, r.until = time.Unix(0, r.status.GetCreatedUnixNano()), time.Unix(0, r.status.GetUntilUnixNano())
	return nil
}

// Fetch waits for the end, removes the profile, and returns all that was recorded, or
// nil if there is nothing. If ctx ends, so does the recording, and what has been
// recorded is returned.
func (r *Recording) Fetch(ctx context.Context) (window *profile.Window, err error) {
	defer func() { _ = r.end(ctx) }() // if this fails the server removes the profile in time
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	from, to := r.span()
	window, r.coverage, err = r.fetch(ctx, from, to)
	return window, err
}

// Windows returns the windows that a whole was merged from, but for those at both ends,
// which are shorter. Agents cut at the edges of their clocks, which differ a little, so
// each request spans half a window on both sides of an edge.
func (r *Recording) Windows(ctx context.Context, whole *profile.Head) (all []*profile.Window, err error) {
	length := r.Profile.Window
	end := whole.Start.Add(whole.Duration + length/2)
	for edge := whole.Start.Add(length / 2).Truncate(length).Add(length); !edge.Add(length).After(end); edge = edge.Add(length) {
		w, _, err := r.fetch(ctx, edge.Add(-length/2), edge.Add(length/2))
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// Missing says what is missing from what was fetched: nodes that failed or did not
// finish, and gaps, as queries word them.
func (r *Recording) Missing() []string {
	return append(r.unfinished(), Gaps(r.trimmed(r.coverage), &atysv1.Selection{FromUnixNano: r.created.UnixNano(), ToUnixNano: r.until.UnixNano()})...)
}

// Nothing says why nothing was recorded.
func (r *Recording) Nothing() string {
	if len(r.status.GetNodes()) == 0 {
		return "no agent has heard of it (\"atys get agents\" shows who is there)"
	}
	if lines := r.unfinished(); len(lines) > 0 {
		return strings.Join(lines, "; ")
	}
	return "no target that matches used CPU time (\"atys get targets\" shows what there is)"
}

// Selection selects what the agents recorded, now and later.
func (r *Recording) Selection() *atysv1.Selection {
	from, to := r.span()
	task, kind := r.Profile.Name, "cpu"
	if len(r.Profile.Events) > 0 {
		event := r.Profile.Recordings()[len(r.Profile.Kinds)]
		task, kind = event.Task, event.Kind
	}
	return &atysv1.Selection{Task: task, Kind: kind, FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano()}
}

// span is when windows of the recording can have started. Nothing else has its name, so
// a wide margin for the clocks of agents does no harm.
func (r *Recording) span() (from, to time.Time) {
	const margin = time.Hour
	return r.created.Add(-margin), r.until.Add(margin)
}

// ErrNoStatus is the error of an object without a status, of an earlier server.
var ErrNoStatus = errors.New("the server is older than this command and sends no status that it understands: update the server, or use -o json")

// readStatus reads the profile's status.
func (r *Recording) readStatus(objects []*atysv1.Object) error {
	for _, o := range objects {
		if r.status = o.GetProfile(); r.status == nil {
			return ErrNoStatus
		}
	}
	return nil
}

// get asks the server for objects of a kind.
func (r *Recording) get(ctx context.Context, kind, name string) ([]*atysv1.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	response, err := r.control.Get(ctx, &atysv1.GetRequest{Kind: kind, Name: name})
	return response.GetObjects(), err
}

// poll updates the status.
func (r *Recording) poll(ctx context.Context) error {
	objects, err := r.get(ctx, "profiles", r.Profile.Name)
	if err != nil {
		return err
	}
	return r.readStatus(objects)
}

// away reports whether a server did not answer, and may when it is asked again.
func away(err error) bool {
	if err == nil {
		return false
	}
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded || errors.Is(err, io.ErrUnexpectedEOF)
}

// deadline is when to stop waiting.
func (r *Recording) deadline() time.Time { return r.applied.Add(r.Profile.Duration + r.Patience) }

// await waits until all agents have shipped what they recorded, or the deadline.
func (r *Recording) await(ctx context.Context) error {
	patient := context.WithoutCancel(ctx)
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	for {
		err := r.poll(patient)
		late := time.Now().After(r.deadline())
		over := time.Since(r.applied) > r.Profile.Duration+time.Second // agents have reported the end by then
		switch {
		case err != nil && (late || !away(err)):
			return err
		case late, err == nil && over && r.status.GetPhase() != "running":
			return nil
		}
		select {
		case <-ctx.Done():
			if err := r.end(ctx); err != nil {
				return err
			}
			return r.settle(patient)
		case <-tick.C:
		}
	}
}

// settle waits until no agent has anything left to ship, but not for long. The server
// has removed the profile by then, so agents' own statuses tell which nodes are done.
func (r *Recording) settle(ctx context.Context) error {
	const atLeast, atMost = time.Second, 10 * time.Second // agents must hear of the end first
	shipped := map[string]bool{}                          // connected nodes that have nothing left to ship
	for began := time.Now(); time.Since(began) < atMost; time.Sleep(pollPause) {
		objects, err := r.get(ctx, "agents", "")
		if away(err) {
			continue
		}
		if err != nil {
			return err
		}
		waiting := false
		for _, o := range objects {
			a := o.GetAgent()
			if a == nil {
				return ErrNoStatus
			}
			waiting = waiting || a.GetState().GetWaitingWindows() > 0
			shipped[a.GetNode()] = a.GetPhase() == "connected" && a.GetState().GetWaitingWindows() == 0
		}
		if time.Since(began) > atLeast && !waiting {
			break
		}
	}
	for _, n := range r.status.GetNodes() {
		if n.GetState().GetPhase() != "failed" && shipped[n.GetNode()] {
			n.State.Phase = "done"
		}
	}
	return nil
}

// end has all agents end the recording, and the server remove the profile.
func (r *Recording) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	_, err := r.control.Delete(ctx, &atysv1.DeleteRequest{Kind: "profiles", Name: r.Profile.Name})
	return err
}

// fetch merges the windows that started in [from, to); nil if there are none.
func (r *Recording) fetch(ctx context.Context, from, to time.Time) (*profile.Window, *atysv1.Coverage, error) {
	about := r.Selection()
	about.FromUnixNano, about.ToUnixNano = from.UnixNano(), to.UnixNano()
	response, err := r.query.Merge(context.WithoutCancel(ctx), &atysv1.MergeRequest{Selection: about})
	for away(err) && ctx.Err() == nil && time.Now().Before(r.deadline()) {
		time.Sleep(pollPause)
		response, err = r.query.Merge(context.WithoutCancel(ctx), &atysv1.MergeRequest{Selection: about})
	}
	if err != nil || response.GetWindow() == nil {
		return nil, nil, err
	}
	window, _, err := wire.Open(response.GetWindow())
	return window, response.GetCoverage(), err
}

// trimmed is a coverage of the time of the recording, which is less than was asked for,
// without what the window says itself. Nodes start a moment after they are told to, and
// end a moment after the end, which is no gap.
func (r *Recording) trimmed(c *atysv1.Coverage) *atysv1.Coverage {
	out := &atysv1.Coverage{Cost: c.GetCost(), CpuNs: c.GetCpuNs(), Damaged: c.GetDamaged(), DoubtfulWindows: c.GetDoubtfulWindows(), Dropped: r.trim(c.GetDropped())}
	for _, l := range c.GetLosses() {
		if profile.LossReason(l.GetReason()).OfWindows() {
			out.Losses = append(out.Losses, l)
		}
	}
	for _, n := range c.GetNodes() {
		if missing := r.trim(n.GetMissing()); len(missing) > 0 || n.GetSilent() {
			out.Nodes = append(out.Nodes, &atysv1.NodeCoverage{Node: n.GetNode(), Task: n.GetTask(), FirstUnixNano: n.GetFirstUnixNano(), LastUnixNano: n.GetLastUnixNano(),
				WatchedNs: n.GetWatchedNs(), Missing: missing, Silent: n.GetSilent()})
		}
	}
	return out
}

// trim cuts spans to the recording.
func (r *Recording) trim(spans []*atysv1.Span) (all []*atysv1.Span) {
	for _, s := range spans {
		from, to := max(s.GetFromUnixNano(), r.created.UnixNano()), min(s.GetToUnixNano(), r.until.UnixNano())
		if time.Duration(to-from) > time.Second {
			all = append(all, &atysv1.Span{FromUnixNano: from, ToUnixNano: to})
		}
	}
	return all
}

// unfinished names the nodes that failed, and those that have not reported that they
// are done. Nodes that wait for a target have nothing to report.
func (r *Recording) unfinished() (lines []string) {
	for _, n := range r.status.GetNodes() {
		switch phase := n.GetState().GetPhase(); phase {
		case "done", "waiting":
		case "failed":
			lines = append(lines, render.Printable("node "+n.GetNode()+" failed: "+n.GetState().GetMessage()))
		default:
			lines = append(lines, render.Printable(fmt.Sprintf("node %s has not said that it is done (it is %s): what it recorded may be missing", n.GetNode(), phase)))
		}
	}
	return lines
}
