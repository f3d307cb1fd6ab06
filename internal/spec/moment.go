package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseMoment reads a time: so long ago, now, a date, or seconds since 1970. Dates
// without a zone are of now's.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if ago, ok := parseAgo(text); ok {
		return now.Add(-ago), nil
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds >= 0 && seconds < 1<<33 {
		return time.Unix(seconds, 0), nil
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time: want -1h, -3d, now, 2026-11-23T09:00:00Z or seconds since 1970", text)
}

// parseAgo reads how long ago something was: -1h, and what time.ParseDuration does
// not know, -3d, -2w and -1d12h. A day has 24 hours.
func parseAgo(text string) (ago time.Duration, ok bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return -d, d <= 0
	}
	const day, longest = 24 * time.Hour, 100 * 365 * 24 * time.Hour
	rest, ok := strings.CutPrefix(text, "-")
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n > uint64(longest/unit.of) {
			return 0, false
		}
		ago, rest = ago+time.Duration(n)*unit.of, after
	}
	if rest == "" {
		return ago, ok && text != "-"
	}
	d, err := time.ParseDuration(rest)
	return ago + d, ok && err == nil && rest[0] >= '0' && rest[0] <= '9' && d < day
}
