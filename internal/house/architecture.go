package house

import (
	"path"
	"regexp"
	"strings"
)

// checkTreeTold holds ARCHITECTURE.md to the tree that exists: what its first
// code block lists is there, and every package, or the parent that speaks for
// its children, is in it. The block is indented by two spaces per level, a
// directory ends in a slash, and its description follows two spaces later.
func checkTreeTold(t *Tree) (bad []Violation) {
	const doc = "ARCHITECTURE.md"
	told := listed(string(t.text(doc)))
	exists := map[string]bool{}
	for _, d := range t.Dirs {
		exists[d] = true
	}
	for dir, line := range told {
		if !exists[dir] {
			bad = append(bad, Violation{doc, line, "lists " + dir + "/, which does not exist"})
		}
	}
	for _, p := range t.Packages {
		_, itself := told[p.Dir]
		_, parent := told[path.Dir(p.Dir)]
		if p.Dir != "." && !itself && (!parent || path.Dir(p.Dir) == "internal") {
			bad = append(bad, Violation{doc, 0, "does not list " + p.Dir + "/"})
		}
	}
	return bad
}

var treeLine = regexp.MustCompile(`^( *)([A-Za-z0-9_.-]+)/(  +.*)?$`)

// listed returns the directories of the first fenced block, with their lines.
func listed(doc string) map[string]int {
	dirs := map[string]int{}
	var at []string
	inside := false
	for i, line := range strings.Split(doc, "\n") {
		if strings.HasPrefix(line, "```") {
			if inside {
				break
			}
			inside = true
			continue
		}
		m := treeLine.FindStringSubmatch(line)
		if !inside || m == nil {
			continue
		}
		depth := min(len(m[1])/2, len(at))
		at = append(at[:depth], m[2])
		dirs[strings.Join(at, "/")] = i + 1
	}
	return dirs
}
