package house

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Ceilings of STYLE: the median file and function are far below.
const (
	maxFileLines = 600
	maxFuncLines = 100
)

// A Rule finds the places of a tree that break it.
type Rule struct {
	Name  string
	Check func(*Tree) []Violation
}

// Rules returns every rule of the house.
func Rules() []Rule {
	return []Rule{
		{"EveryPackageStandsOnAFloor", checkFloors},
		{"ImportsLeadDownwards", checkImports},
		{"ArchitectureTellsTheFloors", checkFloorTable},
		{"ArchitectureTellsTheTree", checkTreeTold},
		{"EveryPackageIsDocumentedOnce", checkPackageComments},
		{"PackagesAreNamedForWhatTheyAre", checkPackageNames},
		{"FilesStaySmall", checkFileSizes},
		{"FunctionsStaySmall", checkFuncSizes},
		{"TypesStaySmall", func(t *Tree) []Violation { return checkTypeSizes(t, oversized()) }},
		{"PackagesStaySmall", func(t *Tree) []Violation { return checkPackageSizes(t, oversized()) }},
		{"ContextsComeFromCallers", func(t *Tree) []Violation { return checkContexts(t, rootContexts()) }},
		{"NoInit", checkInit},
		{"NoMutablePackageState", checkPackageState},
		{"WordsArePlain", func(t *Tree) []Violation { return checkWords(t, retiring()) }},
		{"CFilesAreGuarded", checkCFiles},
		{"NoMachinePaths", checkMachinePaths},
		{"CommandsAreMarked", checkCommands},
		{"LinksLeadSomewhere", checkLinks},
		{"TestsOfRootAreRunAsRoot", checkRootPackages},
	}
}

// checkPackageComments wants one comment per package, in one file, that
// begins as godoc expects. Test files document a directory of tests only.
func checkPackageComments(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		var sources, documented []*File
		for _, f := range p.Files {
			if !f.Test() {
				sources = append(sources, f)
			}
		}
		if len(sources) == 0 {
			sources = p.Files
		}
		for _, f := range sources {
			if f.Syntax.Doc != nil {
				documented = append(documented, f)
			}
		}
		switch {
		case len(documented) == 0:
			bad = append(bad, Violation{p.Dir, 0, "no file has a package comment"})
		case len(documented) > 1:
			bad = append(bad, Violation{documented[1].Path, 0, "a second package comment, the first is in " + documented[0].Path})
		default:
			f := documented[0]
			want := "Package " + strings.TrimSuffix(f.Syntax.Name.Name, "_test") + " "
			if f.Syntax.Name.Name == "main" {
				want = "Command " + path.Base(p.Dir) + " "
			}
			if !strings.HasPrefix(f.Syntax.Doc.Text(), want) {
				bad = append(bad, Violation{f.Path, 0, fmt.Sprintf("the package comment does not begin with %q", want)})
			}
		}
	}
	return bad
}

func checkPackageNames(t *Tree) (bad []Violation) {
	for _, p := range t.Packages {
		switch base := path.Base(p.Dir); base {
		case "util", "utils", "common", "helper", "helpers", "type", "types", "base", "misc", "shared":
			bad = append(bad, Violation{p.Dir, 0, fmt.Sprintf("%q says nothing about what is inside: name it after its noun", base)})
		}
	}
	return bad
}

// handWritten are the kinds of source file a person reads top to bottom.
var handWritten = regexp.MustCompile(`\.(go|c|h|cc|cpp|rs|s|js|ts|css|html|sh|py)$`)

func checkFileSizes(t *Tree) (bad []Violation) {
	generated := map[string]bool{}
	for _, p := range t.Packages {
		for _, f := range p.Files {
			generated[f.Path] = f.Generated
		}
	}
	for _, f := range t.Texts {
		if !handWritten.MatchString(f.Path) || generated[f.Path] || inTestdata(f.Path) || strings.Contains(f.Path, "/dist/") {
			continue
		}
		if n := lines(f.Data); n > maxFileLines {
			bad = append(bad, Violation{f.Path, 0, fmt.Sprintf("%d lines, at most %d", n, maxFileLines)})
		}
	}
	return bad
}

func checkFuncSizes(t *Tree) (bad []Violation) {
	for f, fn := range t.functions {
		first, last := t.Fset.Position(fn.Pos()).Line, t.Fset.Position(fn.End()).Line
		if n := last - first + 1; n > maxFuncLines {
			bad = append(bad, Violation{f.Path, first, fmt.Sprintf("%s has %d lines, at most %d", fn.Name.Name, n, maxFuncLines)})
		}
	}
	for _, f := range t.Texts {
		if isC(f.Path) && !inTestdata(f.Path) {
			bad = append(bad, longCFuncs(f)...)
		}
	}
	return bad
}

// longCFuncs finds functions of C as our style lays them out: the head
// begins in the first column, the closing brace stands in it alone.
func longCFuncs(f Text) (bad []Violation) {
	head, name := 0, ""
	for i, line := range strings.Split(string(f.Data), "\n") {
		switch {
		case strings.HasPrefix(line, "}"):
			if n := i + 1 - head + 1; head > 0 && n > maxFuncLines {
				bad = append(bad, Violation{f.Path, head, fmt.Sprintf("%s has %d lines, at most %d", name, n, maxFuncLines)})
			}
			head = 0
		case line == "" || strings.ContainsAny(line[:1], " \t#/*{"):
		case head == 0 && strings.Contains(line, "(") && !strings.HasSuffix(line, ";"):
			head, name = i+1, strings.TrimSpace(strings.SplitN(line, "(", 2)[0])
		}
	}
	return bad
}

func checkInit(t *Tree) (bad []Violation) {
	for f, fn := range t.functions {
		if fn.Recv == nil && fn.Name.Name == "init" {
			bad = append(bad, Violation{f.Path, t.Fset.Position(fn.Pos()).Line, "an init function: let main, or the caller, do it"})
		}
	}
	return bad
}

func isC(name string) bool {
	switch path.Ext(name) {
	case ".c", ".h", ".cc", ".cpp":
		return true
	}
	return false
}

// checkCFiles wants C beside Go to be kept from the go tool (a .c file breaks
// builds with and without cgo), and BPF C to carry the licences under which
// the kernel takes it and others may reuse it.
func checkCFiles(t *Tree) (bad []Violation) {
	const (
		guard   = "//go:build ignore"
		spdx    = "SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0"
		section = `SEC("license") = "GPL";`
	)
	goDirs := map[string]bool{}
	for _, p := range t.Packages {
		goDirs[p.Dir] = true
	}
	for _, f := range t.Texts {
		if !isC(f.Path) || inTestdata(f.Path) {
			continue
		}
		if path.Ext(f.Path) != ".h" && goDirs[path.Dir(f.Path)] && !bytes.HasPrefix(f.Data, []byte(guard+"\n")) {
			bad = append(bad, Violation{f.Path, 1, fmt.Sprintf("does not begin with %q", guard)})
		}
		program := strings.HasSuffix(f.Path, ".bpf.c")
		if program || strings.HasPrefix(f.Path, "internal/bpf/include/") {
			if head := f.Data[:min(len(f.Data), 400)]; !bytes.Contains(head, []byte(spdx)) {
				bad = append(bad, Violation{f.Path, 1, fmt.Sprintf("does not say %q on top", spdx)})
			}
		}
		if program && !bytes.Contains(f.Data, []byte(section)) {
			bad = append(bad, Violation{f.Path, 0, fmt.Sprintf("has no license section: char LICENSE[] %s", section)})
		}
	}
	return bad
}

// machinePaths are places that exist on one developer's machine only, and
// package registries, which are the reader's own choice. (The brackets keep
// the patterns from finding themselves.)
var machinePaths = regexp.MustCompile(
	`(^|[^A-Za-z0-9_}%*>\])])/(wor[k]/(main|shared|briefs)|roo[t]/(go|work|src|\.[a-z])|ho[m]e/runner)\b` +
		`|pro[x]y\.golang\.org|su[m]\.golang\.org|registr[y]\.npmjs\.org|de[b]\.debian\.org|/tm[p]/bash_jobs`)

func checkMachinePaths(t *Tree) (bad []Violation) {
	for _, f := range t.Texts {
		for i, line := range bytes.Split(f.Data, []byte{'\n'}) {
			if m := machinePaths.Find(line); m != nil {
				bad = append(bad, Violation{f.Path, i + 1, fmt.Sprintf("names a place of one machine, %q", m)})
			}
		}
	}
	return bad
}
