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
	recording, whole, err := f.recorded(ctx, log, asked)
	if err != nil {
		return nil, err
	}
	p.whole, p.lacks = whole, recording.Missing()
	windows, err := recording.Windows(ctx, &whole.Head)
	if err != nil {
		return nil, err
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
