package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

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
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	control := atysv1connect.NewControlClient(client, address)
	began := time.Now()
	if _, err := control.Apply(c.Context(), &atysv1.ApplyRequest{Objects: []string{string(text)}}); err != nil {
		return explain(address, err)
	}
	fmt.Fprintf(os.Stderr, "atys: recording as profile %s for %s; Ctrl-C ends it early\n", p.Name, f.duration)
	status, err := await(c.Context(), control, p)
	if err != nil {
		return errors.Join(explain(address, err), cancelProfile(control, p))
	}
	window, err := fetchWindow(c.Context(), atysv1connect.NewQueryClient(client, address), p, began)
	if err != nil {
		return explain(address, err)
	}
	if window == nil {
		return fmt.Errorf("nothing was recorded: %s", why(status))
	}
	if i := window.Instances; i != (profile.Instances{}) {
		window.Comments = append(window.Comments, fmt.Sprintf("%d of %d targets were recorded, chosen at random", i.Recorded, i.Eligible))
	}
	if err := out.write(window); err != nil {
		return rescue(window, err)
	}
	summarize(os.Stderr, window, f.output)
	for _, n := range status.Nodes {
		if n.Phase == "failed" {
			fmt.Fprintf(os.Stderr, "  node %s failed: %s\n", render.Printable(n.Node), render.Printable(n.Message))
		}
	}
	return nil
}

// patience is how long agents may take, after the end, to ship what they have.
const patience = 30 * time.Second

// await waits until all agents have shipped what they recorded, or are not heard
// of for long. Ctrl-C ends the recording early: what there is by then is taken.
func await(ctx context.Context, control atysv1connect.ControlClient, p *spec.Profile) (status server.ProfileStatus, err error) {
	patient := context.WithoutCancel(ctx)
	deadline := time.Now().Add(p.Duration + patience)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	interrupted := ctx.Done()
	for {
		response, err := control.Get(patient, &atysv1.GetRequest{Kind: "profiles", Name: p.Name})
		if err != nil {
			return status, err
		}
		for _, o := range response.GetObjects() {
			if err := json.Unmarshal([]byte(o.GetJson()), &status); err != nil {
				return status, err
			}
		}
		over := status.Until != nil && time.Now().After(status.Until.Add(time.Second)) // by then agents have told that they end
		if over && status.Phase != "running" || time.Now().After(deadline) {
			return status, nil
		}
		select {
		case <-interrupted:
			if err := cancelProfile(control, p); err != nil {
				return status, err
			}
			return status, settle(patient, control)
		case <-tick.C:
		}
	}
}

// settle waits until no agent has anything left to ship, but not for long.
func settle(ctx context.Context, control atysv1connect.ControlClient) error {
	const atLeast, atMost = time.Second, 10 * time.Second // agents have to hear of the end first
	for began := time.Now(); time.Since(began) < atMost; time.Sleep(250 * time.Millisecond) {
		response, err := control.Get(ctx, &atysv1.GetRequest{Kind: "agents"})
		if err != nil {
			return err
		}
		waiting := 0
		for _, o := range response.GetObjects() {
			var a server.AgentStatus
			if err := json.Unmarshal([]byte(o.GetJson()), &a); err != nil {
				return err
			}
			waiting += a.Waiting
		}
		if waiting == 0 && time.Since(began) > atLeast {
			break
		}
	}
	return nil
}

// cancelProfile ends a recording on all agents.
func cancelProfile(control atysv1connect.ControlClient, p *spec.Profile) error {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	_, err := control.Delete(ctx, &atysv1.DeleteRequest{Kind: "profiles", Name: p.Name})
	return err
}

// fetchWindow gets all that was recorded for a profile, as one window.
func fetchWindow(ctx context.Context, asks atysv1connect.QueryClient, p *spec.Profile, began time.Time) (*profile.Window, error) {
	kind, task := "cpu", p.Name
	if len(p.Events) > 0 {
		kind, task = p.Events[0], p.Recordings()[len(p.Kinds)].Task
	}
	const margin = time.Hour // the server's clock is another one
	response, err := asks.Merge(context.WithoutCancel(ctx), &atysv1.MergeRequest{Selection: &atysv1.Selection{Task: task, Kind: kind,
		FromUnixNano: began.Add(-margin).UnixNano(), ToUnixNano: time.Now().Add(margin).UnixNano()}})
	if err != nil || response.GetWindow() == nil {
		return nil, err
	}
	window, _, err := wire.Open(response.GetWindow())
	return window, err
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
