package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/spec"
)

// fromFleet has the agents of a server record a service at a high rate.
func (f *calibrateFlags) fromFleet(ctx context.Context, service string, log io.Writer) (p calibrate.Preprofile, lacks []string, err error) {
	p.Name = service
	if p.Targets, err = selectorOf(service); err != nil {
		return p, nil, &usageError{fmt.Errorf("%q: %w", service, err)}
	}
	if len(p.Targets) == 1 {
		p.Name = p.Targets[0].Value
	}
	asked, err := f.onDemand(p.Targets)
	if err != nil {
		return p, nil, &usageError{err}
	}
	recording, whole, address, err := f.recorded(ctx, log, asked)
	if err != nil {
		return p, nil, err
	}
	p.Whole = whole
	windows, err := recording.Windows(ctx, &whole.Head)
	if err != nil {
		return p, nil, explain(address, err)
	}
	if p.Stream, err = calibrate.FromWindows(asked.Window, windows...); err != nil {
		return p, nil, fmt.Errorf("%s: %w%s", service, err, remedy(err))
	}
	return p, recording.Missing(), nil
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
