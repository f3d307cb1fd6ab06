package render

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

func TestLosses(t *testing.T) {
	cut := func(detail string, n int64) profile.Loss {
		return profile.Loss{Reason: profile.LossTruncated, Detail: detail, N: n}
	}
	for name, test := range map[string]struct {
		losses  []profile.Loss
		samples int64 // 0: 1000
		line    string
		items   []string
		quiet   bool
	}{
		"nothing": {quiet: true},
		"two reasons, the larger first": {
			losses: []profile.Loss{{Reason: profile.LossUnsymbolized, Detail: "no name for code of x", N: 120}, cut("unreadable stack", 190)},
			line:   "19% truncated, 12% unsymbolized (of 1,000 samples)",
			items:  []string{"19% truncated: unreadable stack (190 samples)", "12% unsymbolized: no name for code of x (120 samples)"},
		},
		"details and kindred reasons are summed": {
			losses: []profile.Loss{cut("too deep", 10), cut("unreadable stack", 15), {Reason: profile.LossStarting, N: 5}},
			line:   "3.0% truncated (of 1,000 samples)",
			items:  []string{"1.5% truncated: unreadable stack (15 samples)", "1.0% truncated: too deep (10 samples)", "0.50% truncated within 50 ms of exec or dlopen (5 samples)"},
		},
		"samples that were lost are of the whole too": {
			losses: []profile.Loss{{Reason: profile.LossDropped, N: 1000}},
			line:   "50% lost (of 2,000 samples)",
			items:  []string{"50% lost: the sampler had no room for them (1,000 samples)"},
		},
		"time without samples": {
			losses: []profile.Loss{{Reason: profile.LossUnsampled, Detail: "threads too short-lived", Value: 240e6}},
			line:   "12% of the CPU time was not sampled: threads too short-lived",
			items:  []string{"12% of the CPU time was not sampled: threads too short-lived (240 ms)"},
		},
		"hardly any time without samples": {
			losses: []profile.Loss{{Reason: profile.LossUnsampled, Value: 30e6}}, quiet: true,
			items: []string{"1.5% of the CPU time was not sampled (30.0 ms)"},
		},
		"little": {
			losses: []profile.Loss{cut("too deep", 4)}, quiet: true,
			line:  "0.40% truncated (of 1,000 samples)",
			items: []string{"0.40% truncated: too deep (4 samples)"},
		},
		"next to nothing": {
			losses: []profile.Loss{{Reason: profile.LossUnsymbolized, N: 1}, cut("", 0)}, samples: 100_000, quiet: true,
			line:  "less than 0.10% incomplete (of 100,000 samples)",
			items: []string{"0.001% unsymbolized (1 sample)"},
		},
		"what is counted": {
			losses: []profile.Loss{{Reason: profile.LossTargets, N: 2}, {Reason: profile.LossExact, N: 1}, {Reason: profile.LossSpoolLimit, N: 3}, {Reason: profile.LossRefused, N: 1}},
			line:   "4 windows never arrived; 2 processes not sampled; 1 thread without exact CPU time",
			items:  []string{"3 windows dropped by the spool's limit", "2 processes not sampled: no room among the targets", "1 thread exited with no room for exact CPU times", "1 window refused by the server"},
		},
		"a reason of a later version": {
			losses: []profile.Loss{{Reason: "eaten by \x1b[2J", N: 20}},
			line:   "20 of other reasons",
			items:  []string{`20 of another reason: eaten by \x1b[2J`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Losses(test.losses, cmp.Or(test.samples, 1000), 2*time.Second)
			if got.Line != test.line || !slices.Equal(got.Items, test.items) || got.Loud == test.quiet {
				t.Errorf("got %q, loud %v\n%q\nwant %q\n%q", got.Line, got.Loud, got.Items, test.line, test.items)
			}
		})
	}
}

// TestEveryLossHasWords fails if a reason is added that has no words here.
func TestEveryLossHasWords(t *testing.T) {
	for _, r := range profile.LossReasons() {
		words, ok := wordsOf[r]
		if !ok || words.short == "" || words.long == "" {
			t.Errorf("%q has no words", r)
		}
		if (words.base == ofSamples) != r.OfSamples() {
			t.Errorf("%q counts %s, and its share is of something else", r, r.Unit())
		}
	}
}

func TestCoverageWords(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 12, minute, 0, 0, time.UTC) }
	c := Coverage{Samples: 1000, CPU: 10 * time.Second, Cost: 100 * time.Millisecond, Asked: Span{at(0), at(30)},
		Losses: []profile.Loss{{Reason: profile.LossTruncated, N: 190}}, Damaged: 2, Doubtful: 3, PrunedShare: 0.004, Overlapping: []string{"a", "b"},
		Tasks:   []TaskCoverage{{"few", profile.Instances{Recorded: 3, Eligible: 9}}},
		Dropped: []Span{{at(-60), at(-30)}},
		Nodes: []NodeCoverage{
			{Node: "whole", Task: "t", Watched: 30 * time.Minute},
			{Node: "late", Task: "t", First: at(10), Last: at(30), Watched: 20 * time.Minute},
			{Node: "gapped", Task: "t", Watched: 29 * time.Minute, Missing: []Span{{at(3), at(4)}}},
			{Node: "silent", Task: "t", Last: at(20), Watched: 20 * time.Minute, Silent: true},
		}}
	got := c.Words(time.UTC)
	if want := "19% truncated (of 1,000 samples); 2 damaged parts left out; 3 of 9 instances; overlapping profiles; uncertain times; part of the time is past retention; node gapped: 1m0s missing; node silent is silent"; got.Line != want || !got.Loud {
		t.Errorf("got %q\nwant %q", got.Line, want)
	}
	items := strings.Join(got.Items, "\n")
	for _, want := range []string{"2 parts of the store are damaged", "3 of 9 eligible instances", "no function's share is off by more than 0.40%", "2026-11-20 11:00:00 to 2026-11-20 11:30:00",
		"node late (t): 20m0s of 30m0s were watched, from 12:10:00 to 12:30:00", "missing 12:03:00 to 12:04:00", "silent since 2026-11-20 12:20:00", "1.00% of the 10.0 s that were used"} {
		if !strings.Contains(items, want) {
			t.Errorf("nothing says %q:\n%s", want, items)
		}
	}
	if strings.Contains(items, "node whole") {
		t.Errorf("a node that was watched all the time is named:\n%s", items)
	}
	if got := (Coverage{CPU: time.Second, Cost: 4 * time.Second}).Words(time.UTC); got.Line != "" || strings.Contains(got.Items[0], "%") {
		t.Errorf("%q, %q: want no share of more than the whole", got.Line, got.Items)
	}
}
