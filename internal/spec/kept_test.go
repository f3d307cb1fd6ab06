package spec

import (
	"slices"
	"strings"
	"testing"
)

// TestParseKept reads profiles of a newer version: what is not known is named and
// left out, at any depth.
func TestParseKept(t *testing.T) {
	for text, want := range map[string][]string{
		`{"kind":"Profile","name":"x","frequency":99}`:                                                              nil,
		`{"kind":"Profile","name":"x","colour":1,"Shape":{"a":2}}`:                                                  {"Shape", "colour"},
		`{"kind":"Profile","name":"x","frequency":{"min":19,"max":999,"mood":"good"},"prometheus":{"top":3,"x":1}}`: {"frequency.mood", "prometheus.x"},
		`{"kind":"Profile","Name":"x"}`:                                                                             nil,
	} {
		p, unknown, err := ParseKept([]byte(text))
		if err != nil || p.Name != "x" || !slices.Equal(unknown, want) {
			t.Errorf("%s: %+v, %q, %v; want %q unknown", text, p, unknown, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"kind":"Profile","name":"X","new":1}`:            "name",
		`{"kind":"Profile","name":"x","frequency":"much"}`: "frequency",
		`{"kind":"Profile","name":"x","new":1}{}`:          "",
		`null`: "kind",
		`{"kind":"Variance","name":"x","threshold":"1s"}`: "Variance",
	} {
		if p, _, err := ParseKept([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %+v, %v; want an error with %q", text, p, err, want)
		}
	}
}
