package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

func TestSummarize(t *testing.T) {
	used := profile.Window{}
	used.Exact.CPU = 2 * time.Second
	hostile := profile.Window{}
	hostile.Losses = []profile.Loss{{Reason: profile.LossTruncated, Detail: "no name for code of x\x1b[2J", N: 1}}
	throttled := profile.Window{Head: profile.Head{Comments: []string{"the kernel throttles samples: it allows 1000 a second"}}}
	for _, c := range []struct {
		name   string
		window *profile.Window
		want   string
	}{
		{"nothing ran", &profile.Window{}, "the target used no CPU"},
		{"too few samples", &used, "higher -F"},
		{"the kernel took fewer samples", &throttled, "allows 1000 a second"},
		{"a file's name steers the terminal", &hostile, `1 sample truncated: no name for code of x\x1b[2J`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			summarize(&out, c.window, "x.folded", true)
			if text := out.String(); !strings.Contains(text, c.want) || strings.Contains(text, "\x1b[2J") {
				t.Errorf("%q lacks %q", text, c.want)
			}
		})
	}
}
