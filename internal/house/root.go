package house

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// asksForRoot is how tests find out whether they can run.
	asksForRoot = regexp.MustCompile(`Gete?uid\(\) != 0`)
	// rootPackages is the list of the Makefile, one line.
	rootPackages = regexp.MustCompile(`(?m)^ROOT_PACKAGES = (.*)$`)
)

// checkRootPackages fails a package whose tests ask for root and that "make
// test-root" leaves out: without root they pass by being skipped.
func checkRootPackages(t *Tree) (bad []Violation) {
	const makefile = "Makefile"
	listed := rootPackages.FindSubmatch(t.text(makefile))
	for _, p := range t.Packages {
		if p.Dir == "internal/house" {
			continue // its tests only speak of it
		}
		if asks(t, p) && (listed == nil || !runs(strings.Fields(string(listed[1])), p.Dir)) {
			bad = append(bad, Violation{makefile, 0, fmt.Sprintf("ROOT_PACKAGES leaves out %s, whose tests ask for root", p.Dir)})
		}
	}
	return bad
}

// asks tells whether tests of a package ask for root, themselves or in what
// they share.
func asks(t *Tree, p *Package) bool {
	tests, asking := false, false
	for _, f := range p.Files {
		shared := strings.HasPrefix(p.Dir, "test/")
		tests = tests || f.Test()
		asking = asking || (f.Test() || shared) && asksForRoot.Match(t.text(f.Path))
	}
	return tests && asking
}

// runs tells whether patterns of the go command cover a directory.
func runs(patterns []string, dir string) bool {
	for _, pattern := range patterns {
		below, all := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "/...")
		if dir == below || all && strings.HasPrefix(dir, below+"/") {
			return true
		}
	}
	return false
}
