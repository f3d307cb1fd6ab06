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

// oversized lists the types and packages that are above the ceilings, with what they may
// have. Entries are only ever lowered or removed: docs/design/0006 says what becomes of them.
func oversized() map[string]int {
	return map[string]int{
		"internal/unwind.Unwinder":      93,
		"internal/agent.Agent":          91,
		"internal/sampler/cpu.Sampler":  75,
		"internal/server.Server":        66,
		"internal/store/disk.Store":     55,
		"internal/server.fleet":         47,
		"internal/binfile.File":         47,
		"internal/proc.FS":              40,
		"internal/store/disk.database":  39,
		"internal/lang/hotspot.Process": 35,
		"internal/symbol.Resolver":      33,
		"internal/query.question":       32,

		"internal/server":     31,
		"internal/store/disk": 31,
		"internal/unwind/cfi": 28,
		"internal/agent":      26,
		"internal/lang":       21,
	}
}

// checkTypeSizes counts the methods of each type.
func checkTypeSizes(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		methods := map[string]int{}
		for _, f := range sources(p) {
			for _, d := range f.Syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
					methods[receiver(fn)]++
				}
			}
		}
		for listed := range oversized() { // those that are gone have no methods
			if name, ok := strings.CutPrefix(listed, p.Dir+"."); ok && methods[name] == 0 {
				methods[name] = 0
			}
		}
		for name, n := range methods {
			bad = append(bad, above(p.Dir, p.Dir+"."+name, "methods", n, maxMethods)...)
		}
	}
	return bad
}

// checkPackageSizes counts the files of each package below internal.
func checkPackageSizes(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		if strings.HasPrefix(p.Dir, "internal/") {
			bad = append(bad, above(p.Dir, p.Dir, "files", len(sources(p)), maxFiles)...)
		}
	}
	return bad
}

// above reports a count above its ceiling, and a ceiling that is higher than it has to be.
func above(dir, name, what string, n, most int) []Violation {
	allowed, listed := oversized()[name]
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

// receiver returns the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
