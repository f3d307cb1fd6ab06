package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/goccy/go-yaml"

	"atys.dev/atys/internal/wire/atysv1"
)

// TestObjectsAreHarmless prints names that would steer a terminal, for programs
// that read the same again.
func TestObjectsAreHarmless(t *testing.T) {
	for _, name := range []string{"plain", "a\x1b]0;x\x07b", "c1 \u009b31m", "del \x7f", "two\nlines", "\u202eright to left", "\r# overwritten", "tab\tbed", "\U000e0041tag", "é 日本"} {
		told, err := json.Marshal(map[string]string{"node": name, name: "key"})
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"json", "yaml"} {
			var out bytes.Buffer
			if err := writeObjects(&out, format, []*atysv1.Object{{Json: string(told)}}); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q in %s is printed as %q", name, format, out.String())
			}
			var read []map[string]string
			if format == "json" {
				err = json.Unmarshal(out.Bytes(), &read)
			} else if !strings.Contains(name, "\n") { // keys of two lines are beyond the library
				read = make([]map[string]string, 1)
				err = yaml.Unmarshal(out.Bytes(), &read[0])
			}
			if err != nil || format == "json" && (read[0]["node"] != name || read[0][name] != "key") {
				t.Errorf("%q in %s, printed as %q, reads as %q, %v", name, format, out.String(), read, err)
			}
		}
	}
}
