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
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
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
	r, window, _, err := f.recorded(c.Context(), os.Stderr, p)
	if err != nil {
		return err
	}
	if i := window.Instances; i != (profile.Instances{}) {
		window.Comments = append(window.Comments, fmt.Sprintf("%d of %d targets were recorded, chosen at random", i.Recorded, i.Eligible))
	}
	return writeRecorded(window, r.Missing(), out, os.Stderr)
}

// recorded has a server's agents record by a profile, and returns all they saw.
func (f *clientFlags) recorded(ctx context.Context, log io.Writer, p *spec.Profile) (r *remote.Recording, window *profile.Window, address string, err error) {
	client, address, err := f.client()
	if err != nil {
		return nil, nil, "", err
	}
	r = remote.NewRecording(client, address, p)
	if err := r.Start(ctx); err != nil {
		return nil, nil, "", explain(address, err)
	}
	fmt.Fprintf(log, "atys: recording as profile %s for %v, at %g Hz; Ctrl-C ends it early\n", p.Name, p.Duration, p.Frequency)
	window, err = r.Fetch(ctx)
	switch {
	case err != nil:
		return nil, nil, "", fmt.Errorf("%w\nwhat was recorded is kept; this gets it: %s", explain(address, err), mergeCommand(address, r.Selection()))
	case window == nil:
		return nil, nil, "", fmt.Errorf("nothing was recorded: %s", r.Nothing())
	}
	return r, window, address, nil
}

// mergeCommand is the command that gets a selection.
func mergeCommand(address string, s *atysv1.Selection) string {
	moment := func(unixNano int64) string { return time.Unix(0, unixNano).UTC().Format(time.RFC3339) }
	return fmt.Sprintf("atys query merge --server %s --task %s --kind %s --from %s --to %s", address, s.GetTask(), s.GetKind(), moment(s.GetFromUnixNano()), moment(s.GetToUnixNano()))
}

// writeRecorded writes the profile that agents recorded and prints a summary, which says what
// is missing.
func writeRecorded(window *profile.Window, missing []string, out *output, log io.Writer) error {
	for _, line := range missing {
		window.AddComment(line)
	}
	if err := out.write(window); err != nil {
		return rescue(window, err)
	}
	summarize(log, window, out.path, false)
	for _, line := range missing {
		if !slices.Contains(window.Comments, line) { // there is room for only so many
			fmt.Fprintln(log, "  "+line)
		}
	}
	return nil
}
