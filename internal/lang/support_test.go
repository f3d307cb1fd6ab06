package lang

import (
	"strings"
	"testing"
)

// TestSupport holds every kind of runtime to a row, and what is not walked to
// a reason.
func TestSupport(t *testing.T) {
	rows := map[Kind]bool{}
	for _, s := range supported() {
		if rows[s.kind] {
			t.Errorf("%s stands twice", s.kind)
		}
		rows[s.kind] = true
		if s.name == "" || s.never != "" && s.ready {
			t.Errorf("%+v: without a name, or both ready and never", s)
		}
		if walked, why := Support(Runtime{Kind: s.kind}); !walked && why == "" {
			t.Errorf("%s is not walked and nothing says why", s.kind)
		}
	}
	for _, r := range recognisers() {
		if len(r.symbols) == 0 {
			t.Error("a runtime without symbols to know it by")
		}
	}
	for _, n := range named {
		if !rows[n.kind] {
			t.Errorf("%s is told by name and has no row", n.kind)
		}
	}
	if walked, why := Support(Runtime{Kind: "cobol"}); walked || why == "" {
		t.Errorf("an unknown kind: %v, %q", walked, why)
	}
}

// TestSpan compares versions as numbers, and names the ends of what is covered.
func TestSpan(t *testing.T) {
	s := support{kind: Python, name: "Python", from: [2]int{3, 6}, to: [2]int{3, 14}, ready: true}
	for version, want := range map[string]bool{"3.5.9": false, "3.6.0": true, "3.10": true, "3.14.2": true, "3.15.0": false, "2.7.18": false, "4.0": false} {
		if walked, why := s.check(Runtime{Kind: Python, Version: version}); walked != want || !want && !strings.Contains(why, "3.6 to 3.14") {
			t.Errorf("%s: %v, %q; want %v", version, walked, why, want)
		}
	}
	java := support{name: "Java", from: [2]int{8, 0}, to: [2]int{25, 99}, ready: true}
	for version, want := range map[string]bool{"7.0.80": false, "8.0.272": true, "25.0.3": true, "26": false, "": false} {
		if walked, why := java.check(Runtime{Version: version}); walked != want || !want && why == "" {
			t.Errorf("Java %s: %v, %q; want %v", version, walked, why, want)
		}
	}
	java.tested = []int{11, 17, 21, 25}
	for version, want := range map[string]bool{"8.0.272": true, "10.0.2": true, "22.0.1": true, "11.0.13": false, "25.0.3": false} {
		if walked, why := java.check(Runtime{Version: version}); !walked || strings.Contains(why, "untested") != want {
			t.Errorf("Java %s: %v, %q; untested %v", version, walked, why, want)
		}
	}
	if got := java.span(); got != "8 to 25" {
		t.Errorf("%q", got)
	}
}
