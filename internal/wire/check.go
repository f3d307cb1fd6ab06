package wire

import (
	"fmt"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// Limits of what one request may hold. Agents stay far below them.
const (
	MaxRequest = 16 << 20 // bytes, before and after compression
	MaxJSON    = 1 << 20  // of them, if it is JSON
	MaxWindows = 10_000   // and as many series
	MaxParts   = 1 << 20  // messages, labels and strings within it: a call of a stack is one
	maxLabels  = 32
	// MaxLabel is how long the name or the value of a label may be.
	MaxLabel = 256
)

// CheckPush checks a request but for its dictionary, which Learn does, and gives
// the stacks that its rows point at. Whatever is wrong with it will be wrong again.
func CheckPush(r *atysv1.PushRequest) (hashes []profile.Hash, err error) {
	if n := len(r.GetWindows()); n > MaxWindows {
		return nil, fmt.Errorf("%d windows in one request: at most %d are taken", n, MaxWindows)
	}
	if n := len(r.GetSeries()); n > MaxWindows {
		return nil, fmt.Errorf("%d series in one request: at most %d are taken", n, MaxWindows)
	}
	if hashes, err = Hashes(r.GetStacks()); err != nil {
		return nil, err
	}
	for i, m := range r.GetSeries() {
		if err := CheckLabels(m.GetLabels()); err != nil {
			return nil, fmt.Errorf("series %d: %w", i, err)
		}
	}
	for i, m := range r.GetWindows() {
		if int64(m.GetSeries()) >= int64(len(r.GetSeries())) {
			return nil, fmt.Errorf("window %d: series %d of %d", i, m.GetSeries(), len(r.GetSeries()))
		}
		if err := CheckRows(m, len(hashes)); err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		for _, p := range m.GetContains() {
			if int64(p.GetSeries()) >= int64(len(r.GetSeries())) || len(p.GetRun()) != len(profile.Run{}) {
				return nil, fmt.Errorf("window %d contains one of series %d of %d, of a run of %d bytes", i, p.GetSeries(), len(r.GetSeries()), len(p.GetRun()))
			}
		}
	}
	return hashes, nil
}

// CheckNames refuses what nothing may be called.
func CheckNames(names ...string) error {
	for _, name := range names {
		if len(name) > MaxLabel {
			return fmt.Errorf("%.40q has %d bytes: at most %d are taken of a name", name, len(name), MaxLabel)
		}
	}
	return nil
}

// CheckLabels refuses what nothing may be labelled.
func CheckLabels(labels profile.Labels) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%d labels: at most %d are taken", len(labels), maxLabels)
	}
	for name, value := range labels {
		if name == "" || len(name) > MaxLabel || len(value) > MaxLabel {
			return fmt.Errorf("label %.40q of %d bytes with a value of %d: names are needed, and at most %d bytes are taken of each", name, len(name), len(value), MaxLabel)
		}
	}
	return nil
}
