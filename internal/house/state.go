package house

import (
	"fmt"
	"go/ast"
	"go/token"
)

// checkPackageState fails package-level variables that code changes: state
// belongs in a value that someone owns. The check is syntactic: it sees
// assignments to the variable, to its elements and fields, and types made to
// be changed (sync, sync/atomic). sync.Pool holds nothing anyone can observe.
func checkPackageState(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		vars := map[string]bool{}
		for _, f := range p.Files {
			if f.Generated || f.Test() {
				continue
			}
			for _, spec := range packageVars(f.Syntax) {
				for _, name := range spec.Names {
					vars[name.Name] = true
				}
				if kind := mutableType(spec.Type); kind != "" {
					bad = append(bad, Violation{f.Path, t.Fset.Position(spec.Pos()).Line, "package-level " + kind})
				}
			}
		}
		for _, f := range p.Files {
			if f.Generated || f.Test() {
				continue
			}
			for _, id := range assigned(f.Syntax) {
				if vars[id.Name] && packageLevel(f.Syntax, id) {
					bad = append(bad, Violation{f.Path, t.Fset.Position(id.Pos()).Line, fmt.Sprintf("changes the package-level variable %s", id.Name)})
				}
			}
		}
	}
	return bad
}

func packageVars(f *ast.File) (specs []*ast.ValueSpec) {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				specs = append(specs, s.(*ast.ValueSpec))
			}
		}
	}
	return specs
}

func mutableType(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok || sel.Sel.Name == "Pool" || pkg.Name != "sync" && pkg.Name != "atomic" {
		return ""
	}
	return pkg.Name + "." + sel.Sel.Name
}

// assigned returns the variable at the root of everything f assigns to.
func assigned(f *ast.File) (ids []*ast.Ident) {
	add := func(e ast.Expr) {
		if id := root(e); id != nil {
			ids = append(ids, id)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					add(e)
				}
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				add(n.Key)
				add(n.Value)
			}
		}
		return true
	})
	return ids
}

func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// packageLevel reports whether id means a declaration of the package rather
// than a local one that shadows it: the parser resolves what a file declares
// itself and leaves the names of other files unresolved.
func packageLevel(f *ast.File, id *ast.Ident) bool {
	return id.Obj == nil || f.Scope.Lookup(id.Name) == id.Obj
}
