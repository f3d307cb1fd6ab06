package house

import (
	"fmt"
	"go/ast"
	"strings"
)

// Ceilings of types and packages below internal.
const (
	maxMethods = 30
	maxFiles   = 20
)

// oversized lists the types and packages above the ceilings, with a limit for each. Limits are
// only ever lowered or removed; docs/design/0006 says how.
func oversized() map[string]int {
	return map[string]int{}
}

// checkTypeSizes counts the methods of each type.
func checkTypeSizes(t *Tree, limits map[string]int) (bad []Violation) {
	for _, p := range t.Packages {
		methods := map[string]int{}
		for _, f := range sources(p) {
			for _, d := range f.Syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
					methods[root(fn.Recv.List[0].Type).Name]++
				}
			}
		}
		for listed := range limits { // also types that are gone
			if name, ok := strings.CutPrefix(listed, p.Dir+"."); ok && methods[name] == 0 {
				methods[name] = 0
			}
		}
		for name, n := range methods {
			bad = append(bad, above(limits, p.Dir, p.Dir+"."+name, "methods", n, maxMethods)...)
		}
	}
	return bad
}

// checkPackageSizes counts the files of each package below internal.
func checkPackageSizes(t *Tree, limits map[string]int) (bad []Violation) {
	for _, p := range t.Packages {
		if strings.HasPrefix(p.Dir, "internal/") {
			bad = append(bad, above(limits, p.Dir, p.Dir, "files", len(sources(p)), maxFiles)...)
		}
	}
	return bad
}

// above reports a count above its ceiling or limit, and a limit that is no longer needed.
func above(limits map[string]int, dir, name, what string, n, most int) []Violation {
	allowed, listed := limits[name]
	switch {
	case listed && n <= most:
		return []Violation{{dir, 0, fmt.Sprintf("%s has %d %s: remove it from oversized", name, n, what)}}
	case listed && n < allowed:
		return []Violation{{dir, 0, fmt.Sprintf("%s has %d %s, and oversized allows %d: lower it", name, n, what, allowed)}}
	case n > max(allowed, most):
		return []Violation{{dir, 0, fmt.Sprintf("%s has %d %s, at most %d", name, n, what, max(allowed, most))}}
	}
	return nil
}

// sources are the hand-written files of a package, without tests.
func sources(p *Package) (files []*File) {
	for _, f := range p.Files {
		if !f.Test() && !f.Generated {
			files = append(files, f)
		}
	}
	return files
}
