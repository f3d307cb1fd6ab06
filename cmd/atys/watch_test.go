package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"atys.dev/atys/internal/wire/atysv1"
)

// TestChanges prints changes in each form; the node's name would steer a terminal.
func TestChanges(t *testing.T) {
	object := &atysv1.Object{Kind: "agents", Name: "n", Json: "{\"node\": \"n\\u001b[1m\",\n \"phase\": \"left\", \"version\": \"1.0\"}"}
	changes := []*atysv1.Change{{What: "added", Object: object}, {What: "synced"}, {What: "removed", Object: object}}
	print := func(format string) string {
		t.Helper()
		var out bytes.Buffer
		show := changeWriter(&out, "agents", format)
		for _, c := range changes {
			if err := show(c); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s steers the terminal: %q", format, &out)
		}
		return out.String()
	}
	for format, version := range map[string]bool{"": false, "wide": true} {
		lines := strings.Split(strings.TrimSpace(print(format)), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "WHAT") || !strings.HasPrefix(lines[1], "added") || !strings.Contains(lines[1], "left") ||
			strings.Contains(lines[1], "1.0") != version || strings.Contains(lines[0], "VERSION") != version {
			t.Errorf("%q: %q", format, lines)
		}
	}
	type told struct {
		What   string
		Object *struct{ Node, Phase string }
	}
	check := func(format string, parts []string, read func([]byte, any) error) {
		t.Helper()
		if len(parts) != len(changes) {
			t.Fatalf("%s: %q", format, parts)
		}
		for i, part := range parts {
			var c told
			if err := read([]byte(part), &c); err != nil || c.What != changes[i].What || (c.Object != nil) != (changes[i].Object != nil) || c.Object != nil && (!strings.HasPrefix(c.Object.Node, "n") || c.Object.Phase != "left") {
				t.Errorf("%s: %v: %q", format, err, part)
			}
		}
	}
	check("json", strings.Split(strings.TrimSpace(print("json")), "\n"), json.Unmarshal)
	check("yaml", strings.Split(strings.TrimPrefix(print("yaml"), "---\n"), "---\n"), func(text []byte, to any) error { return yaml.Unmarshal(text, to) })
}
