package runtimes

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	var all []Runtime
	for _, name := range []string{"java-11", "java-21", "java-21-int", "node-2", "ruby"} {
		all = append(all, Runtime{Name: name})
	}
	for only, want := range map[string]string{
		"":              "java-11 java-21 java-21-int node-2 ruby",
		"java":          "java-11 java-21 java-21-int",
		"java-21":       "java-21 java-21-int",
		"ruby,java-11":  "java-11 ruby",
		"java,java-21":  "java-11 java-21 java-21-int",
		"java-21-int,x": "java-21-int",
	} {
		chosen, err := Choose(all, only)
		if err != nil {
			t.Errorf("%q: %v", only, err)
		}
		var names []string
		for _, r := range chosen {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q: %s, want %s", only, got, want)
		}
	}
	if _, err := Choose(all, "jav"); err == nil || !strings.Contains(err.Error(), "java-11") {
		t.Errorf("a name that is none: %v, want those that there are", err)
	}
}

func TestVersionsAreOrderedByNumber(t *testing.T) {
	names := []string{"python-3.10", "python-3.9", "python-3.14", "python"}
	slices.SortFunc(names, compareVersions)
	if got := strings.Join(names, " "); got != "python python-3.9 python-3.10 python-3.14" {
		t.Error(got)
	}
}

// What is found can be run: its command is there.
func TestAllNamesEachOnce(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range all {
		if seen[r.Name] || r.Language == 0 || len(r.Kinds) == 0 || len(r.Command) == 0 || !strings.HasPrefix(r.Name, r.Family) {
			t.Errorf("%+v", r)
		}
		seen[r.Name] = true
	}
}
