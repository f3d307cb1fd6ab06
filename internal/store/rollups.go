package store

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"atys.dev/atys/internal/profile"
)

// Rollups rolls windows up to levels that are faster to read.
type Rollups interface {
	// Stale lists the steps whose rolled-up windows lack something that was put, by level
	// and time. Queries have to read a lower level for them. They survive crashes.
	Stale(ctx context.Context, tenant string) ([]Step, error)
	// Roll rolls up a step from the level below, and replaces an earlier result. A window
	// that is put during the call is either included or makes the step stale again. Roll
	// does nothing while part of the step is stale at the level below, or after that level
	// was dropped. It leaves out damaged windows and counts them as profile.LossStoreDamage,
	// but keeps an earlier result that was rolled up from more windows.
	Roll(ctx context.Context, tenant string, step Step) error
}

// Level is how far windows are rolled up.
type Level uint8

// The levels. Windows of services do not name an instance.
const (
	Raw Level = iota
	Series10m
	Series1h
	Service1m
	Service10m
	Service1h
	Service1d
)

// String returns the name that users see.
func (l Level) String() string {
	return [...]string{Raw: "raw", Series10m: "10m of series", Series1h: "1h of series",
		Service1m: "1m", Service10m: "10m", Service1h: "1h", Service1d: "1d"}[l]
}

// Length is the time that a window of the level covers; 0 at the raw level, where windows
// are as long as they were cut.
func (l Level) Length() time.Duration {
	return [...]time.Duration{Raw: 0, Series10m: 10 * time.Minute, Series1h: time.Hour,
		Service1m: time.Minute, Service10m: 10 * time.Minute, Service1h: time.Hour, Service1d: 24 * time.Hour}[l]
}

// Below is the level that a level is rolled up from.
func (l Level) Below() Level {
	return [...]Level{Raw: Raw, Series10m: Raw, Series1h: Series10m, Service1m: Raw, Service10m: Service1m, Service1h: Service10m, Service1d: Service1h}[l]
}

// Services reports whether windows of the level are of services rather than of series.
func (l Level) Services() bool { return l >= Service1m }

// MarshalText writes a level as String does.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Level) UnmarshalText(text []byte) error {
	for _, level := range append([]Level{Raw}, RolledUp()...) {
		if level.String() == string(text) {
			*l = level
			return nil
		}
	}
	return fmt.Errorf("%q is no level", text)
}

// RolledUp lists the levels above the raw one. Each follows the one that it is rolled up from.
func RolledUp() []Level {
	return []Level{Series10m, Series1h, Service1m, Service10m, Service1h, Service1d}
}

// Step is the span of one rolled-up window.
type Step struct {
	Level Level
	Start time.Time
}

// Waits reports whether the step is rolled up from another one, which has to be rolled up
// first.
func (s Step) Waits(below Step) bool {
	return below.Level == s.Level.Below() && below.Start.Truncate(s.Level.Length()).Equal(s.Start)
}

// HeatMapSlots reports whether slots of a length are for heat maps. The first roll-up of a
// series keeps them. Longer ones are those of adaptive rates: they say at which rate a row was
// sampled, and a sum of several rates does not keep them.
func HeatMapSlots(length time.Duration) bool { return length > 0 && length < time.Second }

// Steps lists the steps that contain a time, one for each level.
func Steps(at time.Time) (steps []Step) {
	for _, level := range RolledUp() {
		steps = append(steps, Step{level, at.Truncate(level.Length()).UTC()})
	}
	return steps
}

// Groups is the number of replicate groups that rolled-up values are stored in, for
// jackknife intervals over instances.
const Groups = 8

// Group returns the replicate group of a series.
func Group(series profile.Labels) int {
	h := fnv.New32a()
	h.Write([]byte(series.String())) // never fails
	return int(h.Sum32() % Groups)
}
