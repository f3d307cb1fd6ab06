package main

import (
	"strings"
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	m := &measured{instances: 1000, server: watched{mean: 357 << 20, peak: 2066 << 20, cores: 0.21}, disk: 2_200_000, service: 298 * time.Millisecond}
	was := *length
	*length = windowLength
	t.Cleanup(func() { *length = was })
	m.seen.Windows = map[string]int{"a": 1000}
	var b strings.Builder
	if err := compare(&b, []*measured{{instances: 7}, m}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"| memory, mean", "714: 2.0 times better", "1033: **2.0 times worse**", "1.05: 5.0 times better", "2200 B", "149: **2.0 times worse**", "all on kill -9",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "7 instances") {
		t.Errorf("compared with nobody: %s", text)
	}
	b.Reset()
	m.seen.Windows["a"] = 800
	if err := compare(&b, []*measured{m}); err != nil || !strings.Contains(b.String(), "800 windows of 1000 came") || strings.Contains(b.String(), "better") {
		t.Errorf("a load that did not come is compared: %v: %s", err, b.String())
	}
}
