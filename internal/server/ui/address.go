package ui

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// address is what a page shows, as its URL says: the same URL shows the same page, but
// for ranges that end now.
type address struct {
	Service string
	Select  spec.Selector // of series, beside the service
	Last    time.Duration // up to To
	From    time.Time     // zero: Last before To
	To      time.Time     // zero: now
	All     bool          // also frames of libraries, runtimes and the kernel
	Filter  string        // of services, by a part of their names
	Minor   bool          // folded services are listed too
	ByName  bool          // services are sorted by name, not by CPU time
	Refresh time.Duration // how often the page reloads; 0: never
}

const (
	defaultLast = 15 * time.Minute
	longestLast = 10 * 365 * 24 * time.Hour
	maxFilter   = 200
)

// ranges are offered as links; URLs may have any other.
var ranges = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// refreshes are offered as links.
var refreshes = []time.Duration{0, 10 * time.Second, time.Minute}

func parseAddress(values url.Values, now time.Time) (a address, err error) {
	a = address{Service: values.Get("service"), Last: defaultLast, Filter: values.Get("filter"), Minor: values.Get("minor") == "1"}
	if a.Select, err = spec.ParseSelector(values.Get("select")); err != nil {
		return a, fmt.Errorf("select: %w", err)
	}
	if last := values.Get("last"); last != "" {
		if a.Last, err = time.ParseDuration(last); err != nil || a.Last <= 0 || a.Last > longestLast {
			return a, fmt.Errorf("last: %.40q is not a duration: use 15m or 24h", last)
		}
	}
	if err := a.parseTimes(values, now); err != nil {
		return a, err
	}
	switch own := values.Get("own"); own {
	case "", "1":
	case "0":
		a.All = true
	default:
		return a, fmt.Errorf("own: %.40q is neither 0 nor 1", own)
	}
	switch sort := values.Get("sort"); sort {
	case "", "cpu":
	case "name":
		a.ByName = true
	default:
		return a, fmt.Errorf("sort: %.40q is neither cpu nor name", sort)
	}
	if refresh := values.Get("refresh"); refresh != "" {
		if a.Refresh, err = time.ParseDuration(refresh); err != nil || a.Refresh < time.Second || a.Refresh > time.Hour {
			return a, fmt.Errorf("refresh: %.40q is not a duration from 1s to 1h", refresh)
		}
	}
	if len(a.Filter) > maxFilter {
		return a, fmt.Errorf("filter: it has %d bytes, at most %d are accepted", len(a.Filter), maxFilter)
	}
	return a, nil
}

// parseTimes reads the parameters from and to.
func (a *address) parseTimes(values url.Values, now time.Time) error {
	for _, t := range []struct {
		name string
		into *time.Time
	}{{"from", &a.From}, {"to", &a.To}} {
		text := values.Get(t.name)
		if text == "" || t.name == "to" && text == "now" {
			continue
		}
		at, err := spec.ParseMoment(text, now)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		*t.into = at.UTC().Truncate(time.Second)
	}
	switch from, to := a.span(now); {
	case !a.From.IsZero() && values.Get("last") != "":
		return errors.New("last and from exclude each other: give last, from and to, or last and to")
	case !from.Before(to):
		return fmt.Errorf("from must be before to: %s is not before %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	case to.Sub(from) > longestLast:
		return fmt.Errorf("from %s to %s is longer than ten years", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return nil
}

// span is the time range of a page.
func (a address) span(now time.Time) (from, to time.Time) {
	from, to = a.From, now
	if !a.To.IsZero() {
		to = a.To
	}
	if from.IsZero() {
		from = to.Add(-a.Last)
	}
	return from, to
}

// fixed reports whether the range does not end now, or has a fixed start.
func (a address) fixed() bool { return !a.From.IsZero() || !a.To.IsZero() }

// When describes the time range of a page.
func (a address) When() string {
	const layout = "2006-01-02 15:04:05"
	switch {
	case !a.fixed():
		return "last " + short(a.Last)
	case a.To.IsZero():
		return "since " + a.From.Format(layout) + " UTC"
	}
	from, to := a.span(a.To)
	if from.Format(time.DateOnly) == to.Format(time.DateOnly) {
		return from.Format(layout) + " to " + to.Format(time.TimeOnly) + " UTC"
	}
	return from.Format(layout) + " to " + to.Format(layout) + " UTC"
}

// values are the parameters of an address, without defaults.
func (a address) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	if !a.From.IsZero() {
		set("from", a.From.Format(time.RFC3339))
	} else {
		set("last", short(a.Last))
	}
	if !a.To.IsZero() {
		set("to", a.To.Format(time.RFC3339))
	}
	set("service", a.Service)
	if len(a.Select) > 0 {
		set("select", a.Select.String())
	}
	if a.All {
		set("own", "0")
	}
	set("filter", a.Filter)
	if a.Minor {
		set("minor", "1")
	}
	if a.ByName {
		set("sort", "name")
	}
	if a.Refresh > 0 {
		set("refresh", short(a.Refresh))
	}
	return v
}

// at returns the URL of a page.
func (a address) at(page string) string { return page + "?" + a.values().Encode() }

// with returns the URL of the overview after a change.
func (a address) with(change func(*address)) string {
	change(&a)
	return a.at("/")
}

// flame returns the URL of the flame graph.
func (a address) flame() string {
	a.Filter, a.Minor, a.ByName, a.Refresh = "", false, false, 0
	return a.at("/flame")
}

// selection selects what a page shows, of one service or of all.
func (a address) selection(now time.Time, service string) query.Selection {
	from, to := a.span(now)
	about := query.Selection{Select: a.Select, Kinds: []string{spec.KindCPU}, From: from, To: to}
	if service != "" {
		about.Select = append(slices.Clone(about.Select), spec.Matcher{Label: store.ServiceLabel, Op: spec.Equal, Value: service})
	}
	return about
}

// matches reports whether the filter keeps a service.
func (a address) matches(service string) bool {
	return strings.Contains(strings.ToLower(service), strings.ToLower(a.Filter))
}

// short writes 15m0s as 15m.
func short(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
