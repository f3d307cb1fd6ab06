// Package promexport shows hot functions to Prometheus.
//
//	a window of one target -> CPU seconds of its functions, added to what was before
//	   -> the hottest of each target, as counters
//
// A counter has the whole of what its function used since this process began,
// also from before it was shown: so it goes on where it was when a function is
// hot again. How many series there are is bounded, per target and by targets.
package promexport

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/whose"
)

// How long things stay, where windows are not so long that they come seldom.
const (
	// hold is how long a function is shown after it was among the hottest: series
	// that come and go cost Prometheus more than those that stay.
	hold = 5 * time.Minute
	// forget is how long a function or target is remembered after it was last seen.
	// Prometheus ends a series after five minutes without samples. If the function comes
	// back later, its counter starts at zero, and Prometheus handles that as a reset.
	forget = 15 * time.Minute
	// gone is when a target that is no longer seen is not shown any more.
	gone = 5 * time.Minute
	// halfLife is of the heat of a function.
	halfLife = time.Minute

	maxFunctions = 5000 // of a target
	maxTargets   = 2000
	maxLabel     = 200 // characters
)

// Functions counts CPU time, by target and function. It is a
// prometheus.Collector.
type Functions struct {
	now   func() time.Time
	rules *whose.Classifier

	mu      sync.Mutex // guards all below
	targets map[string]*target
	left    float64 // windows of targets for which there was no room
}

// NewFunctions makes an empty one; now may be nil.
func NewFunctions(now func() time.Time) *Functions {
	if now == nil {
		now = time.Now
	}
	return &Functions{now: now, rules: whose.New(nil), targets: map[string]*target{}}
}

// target is what is known of one target, as one task sees it.
type target struct {
	labels    []string // values of targetLabels
	cpu       float64  // seconds
	samples   float64
	lost      map[profile.LossReason]float64
	functions map[profile.FrameKey]*function
	top       int
	seen      time.Time
	window    time.Duration // how long the last one was
}

// hold, gone and forget are for how long what this target does is shown, itself is,
// and both are remembered: over two windows at least.
func (t *target) hold() time.Duration   { return max(hold, 2*t.window) }
func (t *target) gone() time.Duration   { return max(gone, 2*t.window) }
func (t *target) forget() time.Duration { return max(forget, 3*t.window) }

type function struct {
	key     profile.FrameKey
	name    []string // values of functionLabels
	seconds float64
	heat    float64   // seconds, those of long ago counting less
	seen    time.Time // and heat is as of then
	shown   time.Time // it was last among the hottest; zero: never
}

var (
	targetLabels   = []string{"service", "instance", "node", "task"}
	functionLabels = []string{"function", "file", "kind", "class"}

	functionSeconds = prometheus.NewDesc("atys_function_cpu_seconds_total",
		"CPU time that was used in a function itself, without what it called: the hottest functions of each target.", append(slices.Clone(targetLabels), functionLabels...), nil)
	targetSeconds = prometheus.NewDesc("atys_target_cpu_seconds_total",
		"CPU time that a target used, as the kernel counted it.", targetLabels, nil)
	targetSamples = prometheus.NewDesc("atys_target_samples_total",
		"Samples that were taken of a target.", targetLabels, nil)
	targetLost = prometheus.NewDesc("atys_target_incomplete_samples_total",
		"Samples of a target that are missing or incomplete, by reason.", append(slices.Clone(targetLabels), "reason"), nil)
	leftOut = prometheus.NewDesc("atys_windows_not_exported_total",
		"Windows of targets beyond the number that is shown.", nil, nil)
)

// Add counts a window of one target whose frames have names; top is how many of
// its functions are shown. Windows of anything but CPU time are not looked at.
func (f *Functions) Add(w *profile.Window, top int) {
	if len(w.Types) == 0 || w.Types[0].Kind != "cpu" || w.Types[0].Unit != "nanoseconds" || top < 1 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	labels := labelsOf(w)
	key := strings.Join(labels, "\x00")
	t := f.targets[key]
	if t == nil {
		if f.drop(now); len(f.targets) >= maxTargets {
			f.left++
			return
		}
		t = &target{labels: labels, lost: map[profile.LossReason]float64{}, functions: map[profile.FrameKey]*function{}}
		f.targets[key] = t
	}
	t.seen, t.top, t.window = now, top, w.Duration
	t.add(w, f.rules, now)
	t.rank(now)
}

// labelsOf gives the values of targetLabels. Targets that these do not tell apart
// are one. What tells the instances of a service apart is its own name for them,
// else its pod, its container or its unit.
func labelsOf(w *profile.Window) []string {
	of := w.Target
	instance := cmp.Or(of["instance"], of["k8s.pod.uid"], of["container"], of["unit"])
	return []string{labelValue(of["service"]), labelValue(instance), labelValue(of["node"]), labelValue(w.Task)}
}

// drop forgets targets that have long been gone.
func (f *Functions) drop(now time.Time) {
	maps.DeleteFunc(f.targets, func(_ string, t *target) bool { return now.Sub(t.seen) > t.forget() })
}

func (t *target) add(w *profile.Window, rules *whose.Classifier, now time.Time) {
	total := float64(w.Total(0))
	scale := 1e-9 // seconds of a nanosecond that was sampled
	if cpu := w.Exact.CPU.Seconds(); cpu > 0 {
		t.cpu += cpu
		if total > 0 {
			scale = cpu / total
		}
	} else {
		t.cpu += total * scale
	}
	for _, row := range w.Rows.All() {
		t.samples += float64(row.N)
		if leaf := w.Stacks[row.Stack].Locations; len(leaf) > 0 {
			t.function(w.Frames(leaf[0])[0], rules).add(float64(row.Values[0])*scale, now)
		}
	}
	for _, l := range w.Losses {
		if l.Reason.OfSamples() {
			t.lost[l.Reason] += float64(l.N)
		}
	}
}

func (t *target) function(frame profile.Frame, rules *whose.Classifier) *function {
	key := frame.Key()
	f := t.functions[key]
	if f == nil {
		f = &function{key: key, name: []string{labelValue(frame.Function), labelValue(key.FileBase), frame.Kind.String(), rules.Class(frame).String()}}
		t.functions[key] = f
	}
	return f
}

func (f *function) add(seconds float64, now time.Time) {
	f.heat = f.heatAt(now) + seconds
	f.seconds += seconds
	f.seen = now
}

func (f *function) heatAt(now time.Time) float64 {
	return f.heat * math.Exp2(-float64(now.Sub(f.seen))/float64(halfLife))
}

// hottest lists functions by their heat, which is computed once for each: a target may have
// thousands, and is ranked with every window.
func (t *target) hottest(now time.Time) []*function {
	type warm struct {
		*function
		now float64
	}
	all := make([]warm, 0, len(t.functions))
	for _, f := range t.functions {
		all = append(all, warm{f, f.heatAt(now)})
	}
	slices.SortFunc(all, func(a, b warm) int {
		if order := cmp.Compare(b.now, a.now); order != 0 {
			return order
		}
		return slices.Compare(a.name, b.name)
	})
	hottest := make([]*function, len(all))
	for i, w := range all {
		hottest[i] = w.function
	}
	return hottest
}

// rank notes which are the hottest, and forgets what is not seen any more. What
// was shown lately is never forgotten: its counter would run backwards.
func (t *target) rank(now time.Time) {
	maps.DeleteFunc(t.functions, func(_ profile.FrameKey, f *function) bool { return now.Sub(f.seen) > t.forget() })
	hottest := t.hottest(now)
	for _, f := range hottest[:min(t.top, len(hottest))] {
		f.shown = now
	}
	over := len(t.functions) - maxFunctions
	for i := len(hottest) - 1; i >= 0 && over > 0; i-- {
		if f := hottest[i]; now.Sub(f.shown) > t.forget() {
			delete(t.functions, f.key)
			over--
		}
	}
}

// Describe lists the metrics; see prometheus.Collector.
func (f *Functions) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{functionSeconds, targetSeconds, targetSamples, targetLost, leftOut} {
		to <- d
	}
}

// Collect gives their values; see prometheus.Collector.
func (f *Functions) Collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.drop(now)
	to <- prometheus.MustNewConstMetric(leftOut, prometheus.CounterValue, f.left)
	for _, t := range f.targets {
		if now.Sub(t.seen) <= t.gone() {
			t.collect(to, now)
		}
	}
}

func (t *target) collect(to chan<- prometheus.Metric, now time.Time) {
	counter := func(d *prometheus.Desc, value float64, more ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, append(slices.Clone(t.labels), more...)...)
	}
	counter(targetSeconds, t.cpu)
	counter(targetSamples, t.samples)
	for reason, n := range t.lost {
		counter(targetLost, n, string(reason))
	}
	shown, named := 0, map[string]bool{}
	for _, f := range t.hottest(now) {
		if f.shown.IsZero() || now.Sub(f.shown) > t.hold() || named[strings.Join(f.name, "\x00")] {
			continue
		}
		if shown++; shown > 2*t.top {
			return
		}
		named[strings.Join(f.name, "\x00")] = true
		counter(functionSeconds, f.seconds, f.name...)
	}
}

// labelValue makes a name fit for a label: text that is not too long. One that
// is cut keeps a part of its hash, so that two stay two.
func labelValue(name string) string {
	name = strings.ToValidUTF8(name, "\ufffd")
	if utf8.RuneCountInString(name) <= maxLabel {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return string([]rune(name)[:maxLabel-10]) + "…" + hex.EncodeToString(sum[:4])
}
