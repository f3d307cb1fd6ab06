package upkeep

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/store"
)

// Retention is how long windows of each level are kept. Levels without one are
// kept forever. Windows are dropped in whole days.
type Retention map[store.Level]time.Duration

// DefaultRetention is the default of --retention.
const DefaultRetention = "raw=7d,1m=7d,10m=30d,1h=400d,1d=1200d"

// levels are the names that users give levels: those of series and of services
// share one.
var levels = map[string][]store.Level{
	"raw": {store.Raw},
	"1m":  {store.Service1m},
	"10m": {store.Series10m, store.Service10m},
	"1h":  {store.Series1h, store.Service1h},
	"1d":  {store.Service1d},
}

// ParseRetention reads how long to keep what: raw=7d,1m=7d,10m=30d,1h=400d,1d=1200d.
func ParseRetention(text string) (Retention, error) {
	r := Retention{}
	for part := range strings.SplitSeq(text, ",") {
		name, length, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || levels[name] == nil {
			return nil, fmt.Errorf("retention %q: want raw, 1m, 10m, 1h or 1d, and how many days, such as %s", part, DefaultRetention)
		}
		keep, err := parseDays(length)
		if err != nil {
			return nil, fmt.Errorf("retention of %s: %w", name, err)
		}
		for _, level := range levels[name] {
			if _, said := r[level]; said {
				return nil, fmt.Errorf("retention %q: %s is named twice", text, name)
			}
			r[level] = keep
		}
	}
	return r, nil
}

const maxDays = 36500

func parseDays(text string) (time.Duration, error) {
	if n, err := strconv.Atoi(strings.TrimSuffix(text, "d")); err == nil && strings.HasSuffix(text, "d") && n >= 1 && n <= maxDays {
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return 0, fmt.Errorf("%q: want a number of days, such as 30d, from 1d to %dd", text, maxDays)
}
