package house

import (
	"fmt"
	"go/ast"
	"strconv"
	"strings"
)

// rootContexts lists the packages below internal that may still call context.Background, with
// how often. The limits are only ever lowered or removed. What blocks takes its context from
// main, so that a signal or a deadline there ends it.
func rootContexts() map[string]int {
	return map[string]int{
		"internal/sampler/external": 1,

		// Prometheus passes no context to what it collects.
		"internal/server/upkeep": 1,

		// A question to a .NET process must not be broken off: the process can crash.
		"internal/recorder": 1,
	}
}

// checkContexts fails context.Background and context.TODO below internal. Tests, and suites
// of tests that other packages run, have no caller to take a context from.
func checkContexts(t *Tree, limits map[string]int) (bad []Violation) {
	for _, p := range t.Packages {
		if !strings.HasPrefix(p.Dir, "internal/") {
			continue
		}
		var found []Violation
		for _, f := range sources(p) {
			if imports(f, "testing") {
				continue
			}
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if name := selected(call.Fun, "context"); name == "Background" || name == "TODO" {
					found = append(found, Violation{f.Path, t.Fset.Position(call.Pos()).Line, "calls context." + name + ": take the context of the caller"})
				}
				return true
			})
		}
		switch limit, listed := limits[p.Dir]; {
		case len(found) > limit:
			bad = append(bad, found...)
		case listed && len(found) == 0:
			bad = append(bad, Violation{p.Dir, 0, "calls no context.Background any more: remove it from rootContexts"})
		case len(found) < limit:
			bad = append(bad, Violation{p.Dir, 0, fmt.Sprintf("calls context.Background %d times, and rootContexts allows %d: lower it", len(found), limit)})
		}
	}
	return bad
}

func imports(f *File, path string) bool {
	for _, i := range f.Syntax.Imports {
		if value, err := strconv.Unquote(i.Path.Value); err == nil && value == path {
			return true
		}
	}
	return false
}

// selected returns what e selects from a package; "" if it is something else.
func selected(e ast.Expr, pkg string) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); !ok || x.Name != pkg {
		return ""
	}
	return s.Sel.Name
}
