package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// fleetFlags have a server's agents record, instead of this command.
type fleetFlags struct {
	clientFlags
	selector  string
	instances int
}

func (f *fleetFlags) add(c *cobra.Command) {
	f.clientFlags.add(c)
	c.Flags().StringVar(&f.selector, "select", "", "with --server: which targets, by their labels as in PromQL, such as '{service=\"checkout\"}'; else all")
	c.Flags().IntVar(&f.instances, "instances", 0, "with --server: number of targets to record, chosen at random (default: all)")
}

// localOnly are the flags that mean something on this machine only.
var localOnly = []string{"all", "pid", "name", "cgroup", "count", "unwind-memory", "budget", "timed"}

// checkFleet tells whether the fleet is meant, and refuses what does not go together.
func (f *recordFlags) checkFleet(c *cobra.Command, args []string) (fleet bool, err error) {
	changed := c.Flags().Changed
	if !changed("server") {
		if changed("select") || changed("instances") {
			return false, errors.New("--select and --instances go with --server: they choose what its agents record")
		}
		return false, nil
	}
	for _, name := range localOnly {
		if changed(name) {
			return true, fmt.Errorf("--%s does not go with --server: --select chooses what its agents record", name)
		}
	}
	if changed("instances") && f.instances < 1 {
		return true, fmt.Errorf("--instances %d: want 1 or more; without it all targets are recorded", f.instances)
	}
	switch {
	case f.kernel == string(external.AsyncProfiler) && !f.allowAttach:
		return true, fmt.Errorf("--kernel %s: it loads a library into the processes it records: give --allow-attach if you agree to that", f.kernel)
	case len(args) > 0:
		return true, errors.New("a command does not go with --server: its agents record what runs on their machines")
	case !changed("duration"):
		return true, errors.New("-d: say how long the fleet is to be recorded, such as -d 30s")
	}
	return true, nil
}

// onDemand is the profile that is applied for one recording.
func (f *recordFlags) onDemand() (*spec.Profile, error) {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	d := map[string]any{"kind": "Profile", "name": "record-" + hex.EncodeToString(id[:]), "frequency": f.frequency,
		"window": min(max(f.duration, time.Second), spec.DefaultWindow).String(), "duration": f.duration.String()}
	if f.selector != "" {
		d["select"] = f.selector
	}
	if f.instances != 0 {
		d["instances"] = f.instances
	}
	if f.percent > 0 {
		d["pruning"] = f.pruning
	}
	if f.threads {
		d["threads"] = spec.ThreadsEach
	}
	if f.event != "cpu-clock" {
		d["events"] = []string{f.event}
	}
	if f.kernel != "" {
		d["kernel"] = f.kernel
	}
	if f.allowAttach {
		d["allowAttach"] = true
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return spec.ParseJSON(text)
}

// recordFleet has agents record, waits for them, and writes what they saw.
func recordFleet(c *cobra.Command, f recordFlags, out *output) error {
	p, err := f.onDemand()
	if err != nil {
		return &usageError{err}
	}
	client, address, err := f.client()
	if err != nil {
		return err
	}
	d := &demand{control: atysv1connect.NewControlClient(client, address), asks: atysv1connect.NewQueryClient(client, address), profile: p, patience: patience}
	if err := d.apply(c.Context()); err != nil {
		return explain(address, err)
	}
	fmt.Fprintf(os.Stderr, "atys: recording as profile %s for %s; Ctrl-C ends it early\n", p.Name, f.duration)
	window, err := d.bring(c.Context())
	_ = d.end() // what was recorded is kept; where this fails the server forgets the profile by itself
	if err != nil {
		return fmt.Errorf("%w\nwhat was recorded is kept; this gets it: %s", explain(address, err), d.query(address))
	}
	if window == nil {
		return fmt.Errorf("nothing was recorded: %s", why(d.status))
	}
	if i := window.Instances; i != (profile.Instances{}) {
		window.Comments = append(window.Comments, fmt.Sprintf("%d of %d targets were recorded, chosen at random", i.Recorded, i.Eligible))
	}
	return d.write(window, out, os.Stderr)
}

// write writes what was recorded, with what it lacks, and tells of it.
func (d *demand) write(window *profile.Window, out *output, told io.Writer) error {
	lacks := d.lacks()
	for _, line := range lacks {
		window.AddComment(line)
	}
	if err := out.write(window); err != nil {
		return rescue(window, err)
	}
	summarize(told, window, out.path, false)
	for _, line := range lacks {
		if !slices.Contains(window.Comments, line) { // of which there are only so many
			fmt.Fprintln(told, "  "+line)
		}
	}
	return nil
}

const (
	patience       = 30 * time.Second // agents may take so long, after the end, to ship what they have
	pollPause      = 250 * time.Millisecond
	answerPatience = 10 * time.Second // a server that takes longer to tell how things are is asked again
)

// demand is one recording of a fleet. The server's clock may be another than this
// machine's: what is asked for by its times was told by it, and how long something
// takes is measured here.
type demand struct {
	control  atysv1connect.ControlClient
	asks     atysv1connect.QueryClient
	profile  *spec.Profile
	patience time.Duration

	applied        time.Time // by this machine's clock
	created, until time.Time // by the server's
	status         server.ProfileStatus
	coverage       *atysv1.Coverage // of what was fetched
}

// apply has the agents begin.
func (d *demand) apply(ctx context.Context) error {
	text, err := json.Marshal(d.profile)
	if err != nil {
		return err
	}
	response, err := d.control.Apply(ctx, &atysv1.ApplyRequest{Objects: []string{string(text)}})
	if err != nil {
		return err
	}
	d.applied = time.Now()
	if err := d.read(response.GetObjects()); err != nil {
		return err
	}
	if d.status.Until == nil {
		return errors.New("the server does not tell until when it has its agents record")
	}
	d.created, d.until = d.status.Created, *d.status.Until
	return nil
}

// read takes what the server tells of the profile.
func (d *demand) read(objects []*atysv1.Object) error {
	for _, o := range objects {
		var status server.ProfileStatus
		if err := json.Unmarshal([]byte(o.GetJson()), &status); err != nil {
			return err
		}
		d.status = status
	}
	return nil
}

// look asks how the profile fares.
func (d *demand) look(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, answerPatience)
	defer done()
	response, err := d.control.Get(ctx, &atysv1.GetRequest{Kind: "profiles", Name: d.profile.Name})
	if err != nil {
		return err
	}
	return d.read(response.GetObjects())
}

// away tells whether a server did not answer, and may when it is asked again.
func away(err error) bool {
	if err == nil {
		return false
	}
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded || errors.Is(err, io.ErrUnexpectedEOF)
}

// bring waits for what is recorded, and gets it: none if there is nothing.
func (d *demand) bring(ctx context.Context) (*profile.Window, error) {
	if err := d.await(ctx); err != nil {
		return nil, err
	}
	return d.fetch(ctx)
}

// deadline is when nobody is waited for any more.
func (d *demand) deadline() time.Time { return d.applied.Add(d.profile.Duration + d.patience) }

// await waits until all agents have shipped what they recorded, or are not heard
// of for long. Ctrl-C ends the recording early: what there is by then is taken.
func (d *demand) await(ctx context.Context) error {
	patient := context.WithoutCancel(ctx)
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	for {
		err := d.look(patient)
		late := time.Now().After(d.deadline())
		over := time.Since(d.applied) > d.profile.Duration+time.Second // by then agents have told that they end
		switch {
		case err != nil && (late || !away(err)):
			return err
		case late, err == nil && over && d.status.Phase != "running":
			return nil
		}
		select {
		case <-ctx.Done():
			if err := d.end(); err != nil {
				return err
			}
			return d.settle(patient)
		case <-tick.C:
		}
	}
}

// settle waits until no agent has anything left to ship, but not for long. The
// server has forgotten the profile by then: what agents tell of themselves says
// which nodes are done.
func (d *demand) settle(ctx context.Context) error {
	const atLeast, atMost = time.Second, 10 * time.Second // agents have to hear of the end first
	var agents []server.AgentStatus
	for began := time.Now(); time.Since(began) < atMost; time.Sleep(pollPause) {
		now, err := d.agents(ctx)
		if err != nil && !away(err) {
			return err
		}
		if err != nil {
			continue
		}
		agents = now
		if time.Since(began) > atLeast && !slices.ContainsFunc(agents, func(a server.AgentStatus) bool { return a.Waiting > 0 }) {
			break
		}
	}
	for i := range d.status.Nodes {
		n := &d.status.Nodes[i]
		if n.Phase != "failed" && slices.ContainsFunc(agents, func(a server.AgentStatus) bool {
			return a.Node == n.Node && a.Phase == "connected" && a.Waiting == 0
		}) {
			n.Phase = "done"
		}
	}
	return nil
}

// agents are those that the server knows.
func (d *demand) agents(ctx context.Context) (all []server.AgentStatus, err error) {
	ctx, done := context.WithTimeout(ctx, answerPatience)
	defer done()
	response, err := d.control.Get(ctx, &atysv1.GetRequest{Kind: "agents"})
	if err != nil {
		return nil, err
	}
	for _, o := range response.GetObjects() {
		var a server.AgentStatus
		if err := json.Unmarshal([]byte(o.GetJson()), &a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// end has all agents end the recording, and the server forget the profile.
func (d *demand) end() error {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	_, err := d.control.Delete(ctx, &atysv1.DeleteRequest{Kind: "profiles", Name: d.profile.Name})
	return err
}

// fetch gets all that was recorded, as one window.
func (d *demand) fetch(ctx context.Context) (window *profile.Window, err error) {
	from, to := d.span()
	window, d.coverage, err = d.fetchOf(ctx, from, to)
	return window, err
}

// fetchOf gets what was recorded in windows that began in [from, to): none if there is
// nothing.
func (d *demand) fetchOf(ctx context.Context, from, to time.Time) (*profile.Window, *atysv1.Coverage, error) {
	task, kind := d.recorded()
	request := &atysv1.MergeRequest{Selection: &atysv1.Selection{Task: task, Kind: kind, FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano()}}
	response, err := d.asks.Merge(context.WithoutCancel(ctx), request)
	for away(err) && ctx.Err() == nil && time.Now().Before(d.deadline()) {
		time.Sleep(pollPause)
		response, err = d.asks.Merge(context.WithoutCancel(ctx), request)
	}
	if err != nil || response.GetWindow() == nil {
		return nil, nil, err
	}
	window, _, err := wire.Open(response.GetWindow())
	return window, response.GetCoverage(), err
}

// lacks says what is not in what was fetched: of nodes that did not do what they
// should, and as questions say it.
func (d *demand) lacks() []string {
	return append(unfinished(d.status), gapsOf(d.ofSpan(d.coverage), &atysv1.Selection{FromUnixNano: d.created.UnixNano(), ToUnixNano: d.until.UnixNano()})...)
}

// ofSpan is what an answer's coverage says of the time of the recording, which is
// less than was asked for, and the window does not say itself. That nodes begin a
// moment after they are told to, and end as they are, is as it should be.
func (d *demand) ofSpan(c *atysv1.Coverage) *atysv1.Coverage {
	of := &atysv1.Coverage{Cost: c.GetCost(), CpuNs: c.GetCpuNs(), Damaged: c.GetDamaged(), DoubtfulWindows: c.GetDoubtfulWindows(), Dropped: d.within(c.GetDropped())}
	for _, l := range c.GetLosses() {
		if profile.LossReason(l.GetReason()).OfWindows() {
			of.Losses = append(of.Losses, l)
		}
	}
	for _, n := range c.GetNodes() {
		if missing := d.within(n.GetMissing()); len(missing) > 0 || n.GetSilent() {
			of.Nodes = append(of.Nodes, &atysv1.NodeCoverage{Node: n.GetNode(), Task: n.GetTask(), FirstUnixNano: n.GetFirstUnixNano(), LastUnixNano: n.GetLastUnixNano(),
				WatchedNs: n.GetWatchedNs(), Missing: missing, Silent: n.GetSilent()})
		}
	}
	return of
}

// within is what of some times is of the recording.
func (d *demand) within(spans []*atysv1.Span) (all []*atysv1.Span) {
	for _, s := range spans {
		from, to := max(s.GetFromUnixNano(), d.created.UnixNano()), min(s.GetToUnixNano(), d.until.UnixNano())
		if time.Duration(to-from) > time.Second {
			all = append(all, &atysv1.Span{FromUnixNano: from, ToUnixNano: to})
		}
	}
	return all
}

// unfinished names the nodes that failed, and those that have not told that they
// are done. Those that wait for a target have nothing to tell.
func unfinished(status server.ProfileStatus) (lines []string) {
	for _, n := range status.Nodes {
		switch n.Phase {
		case "done", "waiting":
		case "failed":
			lines = append(lines, render.Printable("node "+n.Node+" failed: "+n.Message))
		default:
			lines = append(lines, render.Printable("node "+n.Node+" has not said that it is done (it is "+n.Phase+"): what it recorded may be missing"))
		}
	}
	return lines
}

// recorded is what the windows are called that the agents record.
func (d *demand) recorded() (task, kind string) {
	p := d.profile
	if len(p.Events) > 0 {
		return p.Recordings()[len(p.Kinds)].Task, p.Events[0]
	}
	return p.Name, "cpu"
}

// span is when they can have begun: nobody else has their name, and clocks of
// agents are wrong too.
func (d *demand) span() (from, to time.Time) {
	const margin = time.Hour
	return d.created.Add(-margin), d.until.Add(margin)
}

// query is the command that gets them, today and later.
func (d *demand) query(address string) string {
	task, kind := d.recorded()
	from, to := d.span()
	return fmt.Sprintf("atys query merge --server %s --task %s --kind %s --from %s --to %s", address, task, kind, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
}

// why tells what agents say of a recording that brought nothing.
func why(status server.ProfileStatus) string {
	if len(status.Nodes) == 0 {
		return "no agent has heard of it (\"atys get agents\" shows who is there)"
	}
	if lines := unfinished(status); len(lines) > 0 {
		return strings.Join(lines, "; ")
	}
	return "no target that matches used CPU time (\"atys get targets\" shows what there is)"
}
