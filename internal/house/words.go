package house

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// A retiredWord is one that the tree no longer uses, in identifiers or comments, and what to
// write in its place.
type retiredWord struct {
	word   *regexp.Regexp // of identifiers, which are split into words, and of comments
	better string
}

// retired lists words of our own that readers had to decipher.
func retired() []retiredWord {
	word := func(pattern, better string) retiredWord {
		return retiredWord{regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`), better}
	}
	return []retiredWord{
		word(`heed(?:s|ed|ing)?`, "use, follow, or the statistic's name"),
		word(`bearings?`, "the statistic's name"),
		word(`depos(?:e|es|ed|ing)`, "detach"),
		word(`(?:put|puts|putting) (?:\w+ )?in place whole`, "replaces files atomically"),
		word(`(?:has|have|had) it that`, "an active sentence"),
		word(`in vain`, "the effect"),
		word(`(?:let|lets|letting) go of`, "release, evict or close"),
		word(`(?:take|takes|took|taking) note of`, "record"),
	}
}

// retiring lists packages that still use a retired word. It only ever shrinks.
func retiring() map[string]string {
	return map[string]string{
		"internal/store/disk": "depose",
	}
}

var identifierWords = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+|[0-9]+`)

// checkWords fails retired words in hand-written Go.
func checkWords(t *Tree, exceptions map[string]string) (bad []Violation) {
	words, plain := retired(), map[string]bool{} // texts without any
	for _, p := range t.Packages {
		exception, listed := exceptions[p.Dir]
		used := false
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			check := func(node ast.Node, text string) {
				if plain[text] {
					return
				}
				plain[text] = true
				for _, r := range words {
					found := r.word.FindString(text)
					if found == "" {
						continue
					}
					plain[text] = false
					if listed && r.word.MatchString(exception) {
						used = true
						continue
					}
					bad = append(bad, Violation{f.Path, t.Fset.Position(node.Pos()).Line, fmt.Sprintf("the word %q is retired: write %s", found, r.better)})
				}
			}
			for _, group := range f.Syntax.Comments {
				check(group, strings.Join(strings.Fields(group.Text()), " "))
			}
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Obj != nil && id.Obj.Pos() == id.Pos() {
					check(id, strings.Join(identifierWords.FindAllString(id.Name, -1), " "))
				} else if fn, ok := n.(*ast.FuncDecl); ok && fn.Recv != nil {
					check(fn.Name, strings.Join(identifierWords.FindAllString(fn.Name.Name, -1), " "))
				}
				return true
			})
		}
		if listed && !used {
			bad = append(bad, Violation{p.Dir, 0, fmt.Sprintf("does not use %q any more: remove it from retiring", exception)})
		}
	}
	return bad
}
