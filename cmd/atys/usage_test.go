package main

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"record", "record", 0}, {"recrod", "record", 1}, {"tpo", "top", 1}, {"kitten", "sitting", 3}, {"rport", "report", 1}, {"abcd", "badc", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

// TestSimilar suggests what may have been meant, and nothing where that is a guess.
func TestSimilar(t *testing.T) {
	names := []string{"get", "record", "report", "store", "top", "freq", "own", "min-frequency"}
	for typed, want := range map[string]string{"rec": "record", "recrod": "record", "stor": "store", "frequancy": "freq", "min": "min-frequency", "tpo": "top", "gte": "get", "xyz": "", "": "", "o": "", "nothing": ""} {
		if got := strings.Join(similar(typed, names), " "); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
