package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestFunctionOf(t *testing.T) {
	for site, want := range map[string]string{
		"scan:loop": "scan", "main::scan:loop": "main::scan", "main::run": "main::run", "run": "run",
		"Object#scan:loop": "Object#scan", "": "",
	} {
		if got := functionOf(site); got != want {
			t.Errorf("%q is in %q, want %q", site, got, want)
		}
	}
}

var site = regexp.MustCompile(`([\w.#]+):(\w+)["',]`)

// Every site that a program logs is a line of it that burns, in a function of
// that name: what is misspelt there would only show as a bias.
func TestSitesAreInTheSources(t *testing.T) {
	for family, source := range sources {
		path := filepath.Join("testdata", source)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		places, err := readPlaces(path)
		if family != "dotnet" && err != nil {
			t.Fatal(err)
		}
		var marked []string
		for _, p := range places {
			marked = append(marked, p)
		}
		slices.Sort(marked)
		if family != "dotnet" && strings.Join(marked, " ") != "first loop loop loop loop second" {
			t.Errorf("%s: lines burn %v", source, marked)
		}
		sites := site.FindAllStringSubmatch(string(text), -1)
		if len(sites) < 7 {
			t.Errorf("%s: %d sites", source, len(sites))
		}
		for _, s := range sites {
			function := s[1][strings.LastIndexAny(s[1], ".#")+1:]
			declared := regexp.MustCompile(`(def|function|sub|static long) ` + function + `\b`)
			if !declared.Match(text) {
				t.Errorf("%s: no function %q", source, function)
			}
		}
	}
}
