package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// fromFleet has the agents of a server record a service at a high rate.
func (f *calibrateFlags) fromFleet(ctx context.Context, service string, log io.Writer) (*preprofile, error) {
	p := &preprofile{name: service, fleet: true}
	var err error
	if p.targets, err = selectorOf(service); err != nil {
		return nil, &usageError{fmt.Errorf("%q: %w", service, err)}
	}
	if len(p.targets) == 1 {
		p.name = p.targets[0].Value
	}
	asked, err := f.onDemand(p.targets)
	if err != nil {
		return nil, &usageError{err}
	}
	client, address, err := f.client()
	if err != nil {
		return nil, err
	}
	d := &demand{control: atysv1connect.NewControlClient(client, address), asks: atysv1connect.NewQueryClient(client, address), profile: asked, patience: patience}
	if err := d.apply(ctx); err != nil {
		return nil, explain(address, err)
	}
	fmt.Fprintf(log, "atys: recording as profile %s for %v, at %g Hz; Ctrl-C ends it early\n", asked.Name, asked.Duration, asked.Frequency)
	p.whole, err = d.bring(ctx)
	_ = d.end() // what was recorded is kept; where this fails the server forgets the profile by itself
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w\nwhat was recorded is kept; this gets it: %s", explain(address, err), d.query(address))
	case p.whole == nil:
		return nil, fmt.Errorf("nothing was recorded: %s", why(d.status))
	}
	p.lacks = d.lacks()
	windows, err := d.windows(ctx, &p.whole.Head, asked.Window)
	if err != nil {
		return nil, explain(address, err)
	}
	if p.stream, err = calibrate.FromWindows(asked.Window, windows...); err != nil {
		return nil, fmt.Errorf("%s: %w%s", service, err, remedy(err))
	}
	return p, nil
}

// onDemand is the profile of the recording: its windows are the steps of the replay,
// and those at both ends, which are none whole, come on top.
func (f *calibrateFlags) onDemand(targets spec.Selector) (*spec.Profile, error) {
	r := recordFlags{duration: f.duration + 2*f.step(), targetFlags: targetFlags{frequency: f.frequency, event: "cpu-clock"}, fleetFlags: fleetFlags{selector: targets.String()}}
	p, err := r.onDemand()
	if err != nil {
		return nil, err
	}
	p.Name = strings.Replace(p.Name, "record-", "calibrate-", 1)
	p.Window = f.step()
	return p, nil
}

// windows gets window by window what the whole was made of, but for those at both
// ends, which are shorter. Agents cut at the edges of their clocks, which differ a
// little: an edge is in the middle of what is asked for.
func (d *demand) windows(ctx context.Context, whole *profile.Head, length time.Duration) (all []*profile.Window, err error) {
	end := whole.Start.Add(whole.Duration + length/2)
	for edge := whole.Start.Add(length / 2).Truncate(length).Add(length); !edge.Add(length).After(end); edge = edge.Add(length) {
		w, _, err := d.fetchOf(ctx, edge.Add(-length/2), edge.Add(length/2))
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}
