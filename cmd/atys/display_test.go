package main

import (
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
)

func TestDisplayOptions(t *testing.T) {
	for name, test := range map[string]struct {
		color    string
		terminal bool
		env      map[string]string
		noColor  bool
		rgb      bool
	}{
		"a terminal":             {color: "auto", terminal: true},
		"a file":                 {color: "auto", noColor: true},
		"NO_COLOR":               {color: "auto", terminal: true, env: map[string]string{"NO_COLOR": "1"}, noColor: true},
		"an empty NO_COLOR":      {color: "auto", terminal: true, env: map[string]string{"NO_COLOR": ""}},
		"a dumb terminal":        {color: "auto", terminal: true, env: map[string]string{"TERM": "dumb"}, noColor: true},
		"always wins":            {color: "always", env: map[string]string{"NO_COLOR": "1"}},
		"never wins":             {color: "never", terminal: true, noColor: true},
		"24 bits":                {color: "auto", terminal: true, env: map[string]string{"COLORTERM": "truecolor"}, rgb: true},
		"24 bits, the other way": {color: "auto", terminal: true, env: map[string]string{"COLORTERM": "24bit"}, rgb: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := displayFlags{color: test.color}
			o, err := d.options(screen{terminal: test.terminal, width: 70, getenv: func(key string) string { return test.env[key] }})
			if err != nil {
				t.Fatal(err)
			}
			if o.NoColor != test.noColor || o.RGB != test.rgb || o.Width != 70 {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestRowLimit(t *testing.T) {
	for name, test := range map[string]struct {
		asked int
		s     screen
		want  int
	}{
		"as asked":                 {7, screen{terminal: true, height: 50}, 7},
		"what a terminal holds":    {0, screen{terminal: true, height: 50}, 50 - headLines},
		"a terminal of a few rows": {0, screen{terminal: true, height: 5}, 10},
		"a terminal of no size":    {0, screen{terminal: true}, 0},
		"all in a file":            {0, screen{}, 0},
	} {
		if got := rowLimit(test.asked, test.s); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// No line is wider than the screen, as long as that leaves a name some room;
// a function's file gives way before its name does.
func TestTableWidth(t *testing.T) {
	tab := table{heads: []string{"self", "95% interval"}}
	tab.add(profile.Frame{Function: "short", Mapping: "/usr/bin/program"}, "1.00 µs", "0.1–0.2%")
	tab.add(profile.Frame{Function: "a/rather/long/package.(*Type).Method", Mapping: "/usr/bin/program"}, "1 s", "-")
	tab.add(profile.Frame{Function: "漢字漢字漢字漢字漢字漢字漢字漢字\x1b[2J"}, "1 s", "-")
	for _, width := range []int{0, 20, 40, 60, 80} {
		var text strings.Builder
		tab.write(&text, 4, render.Options{Width: width, NoColor: true})
		for line := range strings.Lines(text.String()) {
			line = strings.TrimSuffix(line, "\n")
			if room := max(width, 23+minName); width > 0 && render.Fit(line, room) != line {
				t.Errorf("%d columns: %q is wider", width, line)
			}
			if strings.Contains(line, "\x1b") {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		if file := strings.Contains(text.String(), "Method  (program)"); file != (width == 0 || width == 80) {
			t.Errorf("%d columns: the file of the long function is shown: %v\n%s", width, file, &text)
		}
	}
}

func TestIntervalDigits(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      string
	}{
		{0.101, 0.146, "10.1–14.6%"}, {0.012, 0.0345, "1.20–3.45%"}, {0.0001, 0.0034, "0.010–0.340%"}, {0.98, 1, "98.0–100.0%"},
	} {
		if got := percents(test.low, test.high); got != test.want {
			t.Errorf("%v to %v: %q, want %q", test.low, test.high, got, test.want)
		}
	}
	if got := points(-0.0363, 0.0142); got != "-3.63 to +1.42" {
		t.Errorf("points: %q", got)
	}
}
