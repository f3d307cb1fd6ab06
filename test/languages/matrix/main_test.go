package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang"
)

// TestUntested holds the table to what atys targets says of each version.
func TestUntested(t *testing.T) {
	var majors, dotnets []string
	for major := range 40 {
		majors = append(majors, fmt.Sprint(major))
		dotnets = append(dotnets, fmt.Sprintf("%d.0", major), fmt.Sprintf("%d.1", major))
	}
	for _, c := range []struct {
		language string
		kind     lang.Kind
		versions []string
	}{{"HotSpot", lang.HotSpot, majors}, {"Node", lang.Node, majors}, {".NET", lang.DotNet, dotnets}} {
		var listed []string
		for _, u := range untested {
			if u.language == c.language {
				listed = append(listed, u.versions...)
			}
		}
		for _, version := range c.versions {
			walked, why := lang.Support(lang.Runtime{Kind: c.kind, Version: version})
			if says := walked && strings.Contains(why, "untested"); says != slices.Contains(listed, version) {
				t.Errorf("%s %s: the table lists it %v, atys targets says %q", c.language, version, !says, why)
			}
		}
	}
}
