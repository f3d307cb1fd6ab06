package spec

import (
	"testing"
	"time"
)

// TestMoments reads times as users write them.
func TestMoments(t *testing.T) {
	zone := time.FixedZone("here", 2*60*60)
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"now":                  now,
		"-90m":                 now.Add(-90 * time.Minute),
		"-3d":                  now.Add(-72 * time.Hour),
		"-2w":                  now.Add(-14 * 24 * time.Hour),
		"-1d12h":               now.Add(-36 * time.Hour),
		"-1w1d1h":              now.Add(-193 * time.Hour),
		"2026-11-24":           time.Date(2026, 11, 24, 0, 0, 0, 0, zone),
		"2026-11-24 09:30":     time.Date(2026, 11, 24, 9, 30, 0, 0, zone),
		"2026-11-24 09:30:15":  time.Date(2026, 11, 24, 9, 30, 15, 0, zone),
		"2026-11-24T09:30:15Z": time.Date(2026, 11, 24, 9, 30, 15, 0, time.UTC),
		"1790000000":           time.Unix(1_790_000_000, 0),
	} {
		if got, err := ParseMoment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1h", "yesterday", "2026-13-01", "-1", "99999999999", "-", "3d", "-d", "-1.5d", "--3d", "-+3d", "-1d2w", "-1d-1h", "-99999d", "-5000w300d99h", "-1d1", "-1d "} {
		if got, err := ParseMoment(text, now); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}
