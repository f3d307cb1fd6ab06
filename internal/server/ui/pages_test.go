package ui

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
)

// TestMinor folds by what was measured: services that used next to nothing, and
// commands whose processes all ended before anybody looked.
func TestMinor(t *testing.T) {
	for _, test := range []struct {
		share float64
		brief bool
		want  bool
	}{{0.3, false, false}, {0.3, true, false}, {0.01, false, false}, {0.01, true, true}, {0.001, false, true}} {
		if got := minor(query.Service{Brief: test.brief}, test.share); got != test.want {
			t.Errorf("share %v, brief %v: %v", test.share, test.brief, got)
		}
	}
}

// TestPageAddresses has each address of a page lead to the same page.
func TestPageAddresses(t *testing.T) {
	for _, text := range []string{"last=15m", "last=90m&own=0&service=a+b", "filter=x&from=2026-11-20T10%3A00%3A00Z&minor=1&refresh=10s&sort=name&to=2026-11-20T11%3A00%3A00Z", "last=1h&select=%7Bnode%3D%22n%22%7D"} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		a, err := parseAddress(values, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.values().Encode(); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestRateLines describes the rate that a policy has decided.
func TestRateLines(t *testing.T) {
	lines := rateLines(map[string]profile.Rate{"adapting": {Hertz: 999, Policy: "atys", Reason: "began", Why: "so it was"}})
	if len(lines) != 1 || !strings.Contains(lines[0], "Sampled at 999 Hz, as policy atys of profile adapting decided: began (") {
		t.Errorf("the page says %q", lines)
	}
}
