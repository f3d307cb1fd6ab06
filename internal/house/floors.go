package house

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Top is the highest floor. Nothing stands above it, so its packages may
// import each other.
const Top = 8

// Floors returns which packages stand on which floor. A pattern is a directory
// below internal, or below the root of the tree for those of the top floor;
// "x/*" is every directory directly in x and "x/..." every one below it.
// The most specific pattern wins. ARCHITECTURE.md shows the same table.
func Floors() [Top + 1][]string {
	return [Top + 1][]string{
		0: {"profile", "profile/profiletest", "stats", "corpus", "atomicfile"},
		1: {"profile/*", "stats/*", "freq", "prune", "health", "merge", "variance", "edges", "render", "render/*", "auth", "unwind/cfi/*"},
		2: {"profile/format", "spec", "plan", "bpf", "binfile", "binfile/*", "diskcache", "proc", "proc/*", "wire/...", "unwind/cfi/flow"},
		3: {"lang", "lang/*", "spool", "store", "wire", "unwind/cfi", "unwind/paging"},
		4: {"store/disk/*", "unwind", "symbol", "sampler", "query", "promexport", "remote"},
		5: {"sampler/table", "store/*", "agent/*", "server/*"},
		6: {"sampler/*", "unwind/replay", "prune/cost", "variance/probe", "edges/burst"},
		7: {"agent", "relay", "server", "recorder", "doctor", "calibrate"},
		8: {"cmd/...", "test/...", "bench/...", "house"},
	}
}

// Floor returns the floor the package in dir stands on.
func Floor(dir string) (int, bool) {
	name, internal := strings.CutPrefix(dir, "internal/")
	floor, best := 0, 0
	for n, patterns := range Floors() {
		for _, p := range patterns {
			below := strings.HasPrefix(p, "cmd/") || strings.HasPrefix(p, "test/") || strings.HasPrefix(p, "bench/")
			if below == internal {
				continue
			}
			if rank := match(p, name); rank > best {
				floor, best = n, rank
			}
		}
	}
	return floor, best > 0
}

// match returns how specifically pattern names the directory, 0 for not at all.
func match(pattern, name string) int {
	if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
		if name == parent || strings.HasPrefix(name, parent+"/") {
			return 1
		}
		return 0
	}
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		if path.Dir(name) == parent {
			return 2
		}
		return 0
	}
	if name == pattern {
		return 3
	}
	return 0
}

// checkFloors fails a package that stands on no floor.
func checkFloors(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		if _, ok := Floor(p.Dir); !ok {
			bad = append(bad, Violation{p.Dir, 0, "stands on no floor: add it to Floors in internal/house/floors.go and to ARCHITECTURE.md"})
		}
	}
	return bad
}

// checkImports fails an import that does not lead downwards. A package may
// import what stands on lower floors, and its own parent. Its tests may also
// import their own floor and test/..., where programs to profile are built.
func checkImports(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		floor, ok := Floor(p.Dir)
		if !ok {
			continue // checkFloors says so
		}
		for _, f := range p.Files {
			for _, spec := range f.Syntax.Imports {
				value, err := strconv.Unquote(spec.Path.Value)
				dir, ours := strings.CutPrefix(value, Module+"/")
				if err != nil || !ours || dir == p.Dir {
					continue
				}
				if why := forbidden(p.Dir, floor, dir, f.Test()); why != "" {
					bad = append(bad, Violation{f.Path, t.Fset.Position(spec.Pos()).Line, why})
				}
			}
		}
	}
	return bad
}

func forbidden(from string, floor int, to string, test bool) string {
	target, ok := Floor(to)
	switch {
	case !ok:
		return fmt.Sprintf("imports %q, which stands on no floor", to)
	case to == "internal/house":
		return "imports the tests of the tree"
	case target < floor, to == path.Dir(from):
		return ""
	case floor == Top:
		return ""
	case test && (target == floor || strings.HasPrefix(to, "test/")):
		return ""
	case target == floor:
		return fmt.Sprintf("imports %q, its neighbour on floor %d", to, floor)
	}
	return fmt.Sprintf("imports %q of floor %d from floor %d", to, target, floor)
}

// checkFloorTable fails when ARCHITECTURE.md tells other floors than Floors.
// Its rows read "| 0 | `profile`, `stats` |".
func checkFloorTable(t *Tree) (bad []Violation) {
	const doc = "ARCHITECTURE.md"
	text := t.text(doc)
	if text == nil {
		return []Violation{{doc, 0, "is missing"}}
	}
	seen := map[int]string{}
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(cells[1])); err == nil {
			seen[n] = strings.TrimSpace(cells[2])
		}
	}
	for n, patterns := range Floors() {
		want := "`" + strings.Join(patterns, "`, `") + "`"
		if seen[n] != want {
			bad = append(bad, Violation{doc, 0, fmt.Sprintf("floor %d reads %q, internal/house has %q", n, seen[n], want)})
		}
		delete(seen, n)
	}
	for n := range seen {
		bad = append(bad, Violation{doc, 0, fmt.Sprintf("floor %d is not in internal/house", n)})
	}
	return bad
}

// text returns the contents of the file name, nil if there is none.
func (t *Tree) text(name string) []byte {
	for _, f := range t.Texts {
		if f.Path == name {
			return f.Data
		}
	}
	return nil
}
