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
	c.Flags().IntVar(&f.instances, "instances", 0, "with --server: record so many of the targets, chosen at random; else all")
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
	if err := out.write(window); err != nil {
		return rescue(window, err)
	}
	summarize(os.Stderr, window, f.output)
	for _, n := range d.status.Nodes {
		if n.Phase == "failed" {
			fmt.Fprintf(os.Stderr, "  node %s failed: %s\n", render.Printable(n.Node), render.Printable(n.Message))
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

// settle waits until no agent has anything left to ship, but not for long.
func (d *demand) settle(ctx context.Context) error {
	const atLeast, atMost = time.Second, 10 * time.Second // agents have to hear of the end first
	for began := time.Now(); time.Since(began) < atMost; time.Sleep(pollPause) {
		waiting, err := d.waiting(ctx)
		if err != nil && !away(err) {
			return err
		}
		if err == nil && waiting == 0 && time.Since(began) > atLeast {
			break
		}
	}
	return nil
}

// waiting is how many windows agents have left to ship.
func (d *demand) waiting(ctx context.Context) (n int, err error) {
	ctx, done := context.WithTimeout(ctx, answerPatience)
	defer done()
	response, err := d.control.Get(ctx, &atysv1.GetRequest{Kind: "agents"})
	if err != nil {
		return 0, err
	}
	for _, o := range response.GetObjects() {
		var a server.AgentStatus
		if err := json.Unmarshal([]byte(o.GetJson()), &a); err != nil {
			return 0, err
		}
		n += a.Waiting
	}
	return n, nil
}

// end has all agents end the recording, and the server forget the profile.
func (d *demand) end() error {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	_, err := d.control.Delete(ctx, &atysv1.DeleteRequest{Kind: "profiles", Name: d.profile.Name})
	return err
}

// fetch gets all that was recorded, as one window.
func (d *demand) fetch(ctx context.Context) (*profile.Window, error) {
	task, kind := d.recorded()
	from, to := d.span()
	request := &atysv1.MergeRequest{Selection: &atysv1.Selection{Task: task, Kind: kind, FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano()}}
	response, err := d.asks.Merge(context.WithoutCancel(ctx), request)
	for away(err) && ctx.Err() == nil && time.Now().Before(d.deadline()) {
		time.Sleep(pollPause)
		response, err = d.asks.Merge(context.WithoutCancel(ctx), request)
	}
	if err != nil || response.GetWindow() == nil {
		return nil, err
	}
	window, _, err := wire.Open(response.GetWindow())
	return window, err
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
	var failed []string
	for _, n := range status.Nodes {
		if n.Phase == "failed" {
			failed = append(failed, n.Node+": "+n.Message)
		}
	}
	if len(failed) > 0 {
		return render.Printable(strings.Join(failed, "; "))
	}
	return "no target that matches used CPU time (\"atys get targets\" shows what there is)"
}
