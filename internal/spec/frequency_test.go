package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"atys.dev/atys/internal/freq"
)

// TestRanges reads ranges in YAML and JSON, fills in what is not said, and writes
// them so that they read the same.
func TestRanges(t *testing.T) {
	for text, want := range map[string]freq.Options{
		"{min: 19, max: 999}": {Policy: freq.Auto, Min: 19, Max: 999, Top: freq.DefaultTop, Width: freq.DefaultWidth},
		"{min: 19, max: 999, policy: auto, width: 0.01, top: 20}":                                   {Policy: freq.Auto, Min: 19, Max: 999, Top: 20, Width: 0.01},
		"{min: 1, max: 20000, policy: atys}":                                                        {Policy: freq.Atys, Min: 1, Max: 20000, Top: freq.DefaultTop, Theta: freq.DefaultTheta, Lambda: freq.DefaultLambda, Streak: freq.DefaultStreak},
		"{min: 2.5, max: 2.5, policy: atys, theta: 0.1, lambda: 0.5, streak: 1, renormalise: true}": {Policy: freq.Atys, Min: 2.5, Max: 2.5, Top: freq.DefaultTop, Theta: 0.1, Lambda: 0.5, Streak: 1, Renormalise: true},
		"\n  min: 19\n  max: 999\n  policy: atys\n  theta: 0.2":                                     {Policy: freq.Atys, Min: 19, Max: 999, Top: freq.DefaultTop, Theta: 0.2, Lambda: freq.DefaultLambda, Streak: freq.DefaultStreak},
		`{"min": 19, "max": 999, "policy": "auto", "width": 0.02}`:                                  {Policy: freq.Auto, Min: 19, Max: 999, Top: freq.DefaultTop, Width: 0.02},
	} {
		all, err := Parse(strings.NewReader("kind: Profile\nname: x\nduration: 30m\npruning: P99\nfrequency: " + text + "\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p := all[0]
		if *p.Adaptive != want || p.Frequency != want.Max || p.Pruning != 99 {
			t.Errorf("%s is read as %+v, at most %g", text, *p.Adaptive, p.Frequency)
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJSON(written)
		if err != nil || *again.Adaptive != want {
			t.Errorf("%s is written as %s: %v", text, written, err)
		}
		byHand, err := Parse(strings.NewReader(string(written)))
		if err != nil || *byHand[0].Adaptive != want {
			t.Errorf("%s in a file: %v", written, err)
		}
	}
	if p := Builtin(); p.Adaptive != nil || p.Rates() != "19" {
		t.Errorf("one rate is %s, chosen by %+v", p.Rates(), p.Adaptive)
	}
	if p := (&Profile{Frequency: 999, Adaptive: &freq.Options{Policy: freq.Atys, Min: 1.5, Max: 999}}); p.Rates() != "1.5-999 atys" {
		t.Errorf("a range is %s", p.Rates())
	}
}

// TestRangesRefused names the field, its value and the way out.
func TestRangesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                                            "frequency.min: 0: want 1 to 20000 Hz",
		"{min: 0.5, max: 99}":                           "frequency.min: 0.5: want 1 to 20000 Hz",
		"{min: 19, max: 50000}":                         "frequency.max: 50000: want 1 to 20000 Hz",
		"{min: 99, max: 19}":                            "frequency.min: 99: want more than 0, and at most max, which is 19",
		"{min: .nan, max: 99}":                          "frequency",
		"{min: 19, max: 99, policy: a}":                 `frequency.policy: "a": want auto or atys`,
		"{min: 19, max: 99, top: 1000}":                 "frequency.top: 1000",
		"{min: 19, max: 99, theta: 0.1}":                `frequency.policy: theta, lambda, streak and renormalise are of policy atys: this is "auto"`,
		"{min: 19, max: 99, width: 0.7}":                "frequency.width: 0.7",
		"{min: 19, max: 99, fast: true}":                "want a number, such as 99, or a range",
		"{min: 19, max: 99, min: 20}":                   "frequency",
		"[19, 99]":                                      "want a number, such as 99, or a range",
		"much":                                          "want a number, such as 99, or a range",
		"{min: 19, max: 99, policy: atys, theta: 0.7}":  "frequency.theta: 0.7",
		"{min: 19, max: 99, policy: atys, lambda: 1}":   "frequency.lambda: 1",
		"{min: 19, max: 99, policy: atys, streak: -1}":  "frequency.streak: -1",
		"{min: 19, max: 99, policy: atys, width: 0.01}": `frequency.width: it is of policy auto: this is "atys"`,
	} {
		all, err := Parse(strings.NewReader("kind: Profile\nname: x\nfrequency: " + text + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, %v; want an error with %q", text, all, err, want)
		}
	}
	all, err := Parse(strings.NewReader("kind: Profile\nname: x\nevents: [task-clock]\nfrequency: {min: 19, max: 99}\n"))
	if err == nil || !strings.Contains(err.Error(), `a range is chosen from by what cpu shows, and kinds are []`) {
		t.Errorf("a range of events alone gives %v, %v", all, err)
	}
	for text, want := range map[string]string{
		`{"min":19,"max":999,"policy":"auto","least":1}`: "or a range, such as",
		`{"policy":"auto"}`:                 "frequency.max: 0: want 1 to 20000 Hz",
		`{"min":1e400,"max":999}`:           "frequency",
		`{"min":19,"max":999,"policy":"x"}`: `frequency.policy: "x"`,
	} {
		p, err := ParseJSON([]byte(`{"kind":"Profile","name":"x","frequency":` + text + `}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %+v, %v; want an error with %q", text, p, err, want)
		}
	}
}

// TestMinFrequency reads the least rate, keeps it, and leaves out what is usual: older
// agents refuse fields that they do not know.
func TestMinFrequency(t *testing.T) {
	for text, want := range map[string]float64{"": DefaultMinFrequency, "minFrequency: 5": 5, "minFrequency: 19": 19, "minFrequency: 1": 1} {
		all, err := Parse(strings.NewReader("kind: Profile\nname: x\nfrequency: 99\n" + text + "\n"))
		if err != nil || all[0].MinFrequency != want {
			t.Errorf("%q is read as %+v: %v", text, all, err)
			continue
		}
		written, err := json.Marshal(all[0])
		if err != nil || strings.Contains(string(written), "minFrequency") != (want != DefaultMinFrequency) {
			t.Errorf("%q is written as %s: %v", text, written, err)
		}
		if again, err := ParseJSON(written); err != nil || again.MinFrequency != want {
			t.Errorf("%s is read as %+v: %v", written, again, err)
		}
	}
	for text, want := range map[string]string{
		"minFrequency: 0.5": "minFrequency: 0.5: want 1 to 20000 Hz",
		"minFrequency: -1":  "minFrequency: -1: want 1 to 20000 Hz",
		"minFrequency: 200": "minFrequency: 200: more than frequency, 99",
	} {
		if _, err := Parse(strings.NewReader("kind: Profile\nname: x\nfrequency: 99\n" + text + "\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if p, err := Parse(strings.NewReader("kind: Profile\nname: x\nfrequency: 2\n")); err != nil || p[0].MinFrequency != DefaultMinFrequency {
		t.Errorf("a rate below the usual least: %+v, %v", p, err)
	}
}
