package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// load makes a tree of the given files.
func load(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// goFile is a small Go file with the given imports of our own packages.
func goFile(pkg string, imports ...string) string {
	s := "package " + pkg + "\n"
	for _, i := range imports {
		s += fmt.Sprintf("import _ %q\n", Module+"/"+i)
	}
	return s
}

// methods returns the source of methods M<from> to M<to-1> of a type.
func methods(of string, from, to int) (text string) {
	for i := from; i < to; i++ {
		text += fmt.Sprintf("func (%s) M%d() {}\n", of, i)
	}
	return text
}

// many returns packages with the given numbers of files.
func many(of map[string]int) map[string]string {
	files := map[string]string{}
	for dir, n := range of {
		for i := range n {
			files[fmt.Sprintf("%s/f%d.go", dir, i)] = goFile("p")
		}
		files[dir+"/f_test.go"] = goFile("p")
	}
	return files
}

func TestRules(t *testing.T) {
	long := strings.Repeat("\n", 101)
	tests := []struct {
		name  string
		rule  string
		files map[string]string
		want  []string // a part of each violation, in order
	}{
		{"links", "LinksLeadSomewhere", map[string]string{
			"README.md":       "# A b\n[x](docs/a.md) [y](docs/a.md#c-d-10000-hz) ![z](docs/z.png) [w](https://a/b) [v](docs) [u](#a-b)\n",
			"docs/a.md":       "# A\n## C, `d`: 10,000 Hz\n```text\n[none](nowhere)\n# no heading\n```\n[up](../README.md#a-b)\n",
			"docs/broken.md":  "[x](gone.md)\n\n[y](a.md#gone) [z](a.md#no-heading)\n",
			"docs/ignored.go": "package docs // [x](gone)\n",
		}, []string{"docs/broken.md:1: the link \"gone.md\" leads to no file docs/gone.md", "broken.md:3: the link \"a.md#gone\" leads to no heading of docs/a.md", "a.md#no-heading"}},
		{"downwards", "ImportsLeadDownwards", map[string]string{
			"internal/symbol/a.go":          goFile("symbol", "internal/profile", "internal/binfile", "internal/unwind/cfi"),
			"internal/profile/pprof/a.go":   goFile("pprof", "internal/profile"),
			"internal/unwind/replay/a.go":   goFile("replay", "internal/unwind"),
			"cmd/atys/main.go":              goFile("main", "internal/server", "bench/cost"),
			"internal/symbol/a_test.go":     goFile("symbol", "internal/unwind", "test/victims"),
			"internal/symbol/b_test.go":     goFile("symbol_test", "internal/symbol"),
			"internal/profile/format/go.go": goFile("format", "internal/profile/pprof"),
		}, nil},
		{"upwards", "ImportsLeadDownwards", map[string]string{
			"internal/proc/a.go":       goFile("proc", "internal/symbol"),
			"internal/relay/a.go":      goFile("relay", "internal/agent"),
			"internal/stats/a_test.go": goFile("stats", "internal/symbol"),
			"internal/unwind/a.go":     goFile("unwind", "internal/nowhere"),
			"test/x/a.go":              goFile("x", "internal/house"),
		}, []string{"proc/a.go:2: imports \"internal/symbol\" of floor 4", "neighbour on floor 7", "stats/a_test.go:2", "stands on no floor", "tests of the tree"}},
		{"no floor", "EveryPackageStandsOnAFloor", map[string]string{
			"internal/nowhere/a.go": goFile("nowhere"), "internal/proc/a.go": goFile("proc"), "x/a.go": goFile("x"),
			"internal/test/x/a.go": goFile("x"),
		}, []string{"internal/nowhere", "internal/test/x", "x: stands"}},
		{"documented", "EveryPackageIsDocumentedOnce", map[string]string{
			"internal/a/a.go": "// Package a is.\npackage a", "internal/a/b.go": "package a", "internal/a/a_test.go": "package a",
			"internal/b/a.go": "// Package b is.\npackage b", "internal/b/b.go": "// Package b too.\npackage b",
			"internal/c/a.go": "package c", "internal/c/a_test.go": "// Package c is.\npackage c",
			"internal/d/a.go":  "// Foo.\npackage d",
			"cmd/e/a.go":       "// Command e does.\npackage main",
			"test/f/a_test.go": "// Package f tests.\npackage f_test",
		}, []string{"internal/b/b.go: a second", "internal/c: no file", "internal/d/a.go: the package comment"}},
		{"root", "TestsOfRootAreRunAsRoot", map[string]string{
			"Makefile":             "ROOT_PACKAGES = ./internal/a ./internal/b/... ./test/c\n",
			"internal/a/a_test.go": "package a // Geteuid() != 0", "internal/b/b/a_test.go": "package b // Geteuid() != 0",
			"internal/a/a/a_test.go": "package a // Geteuid() != 0",
			"test/c/a.go":            "package c // Getuid() != 0", "test/c/a_test.go": "package c",
			"test/d/a.go": "package d // Getuid() != 0", "test/d/a_test.go": "package d", "test/e/a.go": "package e // Getuid() != 0",
			"internal/f/f.go": "package f // Geteuid() != 0", "internal/f/f_test.go": "package f",
		}, []string{"leaves out internal/a/a", "leaves out test/d"}},
		{"names", "PackagesAreNamedForWhatTheyAre", map[string]string{"internal/util/a.go": goFile("util")}, []string{"internal/util"}},
		{"file size", "FilesStaySmall", map[string]string{
			"a.go": goFile("a") + strings.Repeat("\n", 600), "a.bpf.c": strings.Repeat("\n", 600),
			"b.go": "// Code generated by x. DO NOT EDIT.\n\npackage a\n" + strings.Repeat("\n", 600), "b_bpfel.go": goFile("a") + strings.Repeat("\n", 600),
			"testdata/a.c": strings.Repeat("\n", 700),
		}, []string{"a.go: 601 lines"}},
		{"function size", "FunctionsStaySmall", map[string]string{
			"a.go":  "package a\nfunc f() {" + long + "}\nfunc g() {\n}",
			"b.c":   "static int\nlong_one(int a,\n         int b)\n{\n" + long + "}\n",
			"c.c":   "struct s {\n" + long + "};\nint f(void);\nint g(void)\n{\n}\n",
			"d.go":  "// Code generated by x. DO NOT EDIT.\n\npackage a\nfunc f() {" + long + "}",
			"e.h":   "static int f(int a) {\n" + long + "}\n",
			"g_.go": "package a",
		}, []string{"a.go:2: f has 102", "b.c:2: long_one has", "e.h:1: static int f has"}},
		{"init", "NoInit", map[string]string{
			"a.go": "package a\nfunc init() {}\nfunc (t T) init() {}\ntype T int",
		}, []string{"a.go:2"}},
		{"state", "NoMutablePackageState", map[string]string{
			"a.go": "package a\nimport \"sync\"\nvar n, table = 0, map[int]int{}\nvar mu sync.Mutex\nvar pool sync.Pool\n" +
				"func f() { n++ }\nfunc g() { n := 1; n = 2; _ = n }\nfunc h(table []int) { table[0] = 1 }\n",
			"b.go":      "package a\nfunc i() { table[1] = 2 }\n",
			"a_test.go": "package a\nfunc j() { n = 3 }\n",
		}, []string{"a.go:4: package-level sync.Mutex", "a.go:6: changes the package-level variable n", "b.go:2: changes"}},
		{"c files", "CFilesAreGuarded", map[string]string{
			"internal/x/a.go":             goFile("x"),
			"internal/x/good.bpf.c":       "//go:build ignore\n// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n",
			"internal/x/bad.bpf.c":        "// SPDX-License-Identifier: Apache-2.0\n",
			"internal/x/plain.c":          "//go:build ignore\n",
			"internal/bpf/include/h.h":    "",
			"test/victims/programs/own.c": "int main(void) {}\n",
		}, []string{"include/h.h:1: does not say", "bad.bpf.c:1: does not begin", "bad.bpf.c:1: does not say", "bad.bpf.c: has no license section"}},
		{"machine paths", "NoMachinePaths", map[string]string{
			"a.md": "see /wor" + "k/main/x\n/proc/1/roo" + "t/go\nGOPROXY=https://prox" + "y.golang.org\n\"/roo" + "t/go/bin\"\npath.Join(\"/roo" + "t\", p)\n",
		}, []string{"a.md:1", "a.md:3", "a.md:4"}},
		{"commands", "CommandsAreMarked", map[string]string{
			".ci/run":          "step test make test\n  make test\n",
			"README.md":        "<!-- run by .ci/run -->\n```sh\nmake test   # a few minutes\n```\n\n```bash\nls\n```\n\n<!-- run by .ci/run -->\n\n```sh\nmake all\n```\n```sh\n$ ls\n```\n",
			"docs/guide/a.md":  "```\nwhat\n```\n```text\nopen",
			"docs/design/a.md": "```bash\nls\n```",
		}, []string{"README.md:6: a block of \"bash\"", "README.md:12: .ci/run has no line \"make all\"", "README.md:15: a prompt", "docs/guide/a.md: a fenced", "docs/guide/a.md:1: a block without"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkRule(t, tt.rule, load(t, tt.files), tt.want)
		})
	}
}

func TestSizes(t *testing.T) {
	limits := map[string]int{"internal/a.Large": 40, "internal/a.Gone": 31, "internal/large": 21}
	tests := []struct {
		name  string
		check func(*Tree, map[string]int) []Violation
		files map[string]string
		want  []string
	}{
		{"methods", checkTypeSizes, map[string]string{
			"internal/a/a.go":      goFile("a") + "type T[V any] struct{}\n" + methods("*T[V]", 0, 20) + methods("Large", 0, 39),
			"internal/a/b.go":      goFile("a") + methods("T[V]", 20, 31),
			"internal/a/a_test.go": goFile("a") + methods("U", 0, 40),
			"internal/b/a.go":      goFile("b") + methods("*T", 0, 30),
		}, []string{"a.T has 31 methods, at most 30", "a.Large has 39 methods, and oversized allows 40: lower it", "a.Gone has 0 methods: remove it from oversized"}},
		{"files", checkPackageSizes, many(map[string]int{"internal/a": 21, "internal/b": 20, "cmd/c": 30, "internal/large": 22}),
			[]string{"internal/a has 21 files, at most 20", "internal/large has 22 files, at most 21"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkViolations(t, tt.check(load(t, tt.files), limits), tt.want)
		})
	}
}

func TestContexts(t *testing.T) {
	calls := func(name string, n int) string {
		return goFile(name) + "import \"context\"\n" + strings.Repeat("var _ = context.Background()\n", n)
	}
	tree := load(t, map[string]string{
		"cmd/a/a.go":           calls("main", 1),
		"internal/a/a.go":      calls("a", 1),
		"internal/a/a_test.go": calls("a", 5),
		"internal/b/a.go":      goFile("b") + "import \"context\"\nvar _, cancel = context.WithCancel(context.TODO())\n",
		"internal/c/a.go":      calls("c", 2),
		"internal/d/a.go":      goFile("d"),
		"internal/e/a.go":      calls("e", 1),
		"internal/f/suite.go":  strings.Replace(calls("f", 3), "import", "import \"testing\"\nimport", 1),
	})
	checkViolations(t, checkContexts(tree, map[string]int{"internal/a": 1, "internal/c": 1, "internal/d": 1, "internal/e": 2}),
		[]string{"internal/b/a.go:3: calls context.TODO", "internal/c/a.go:3", "internal/c/a.go:4", "internal/d: calls no", "internal/e: calls context.Background 1 times, and rootContexts allows 2"})
}

func TestWords(t *testing.T) {
	tree := load(t, map[string]string{
		"cmd/a/a.go":           goFile("main") + "func deposeAll() {}\n",
		"internal/a/a.go":      goFile("a") + "// f puts them in place\n// whole.\nfunc f(bearing int) { heedless := `heed`; _ = heedless }\n",
		"internal/a/a_test.go": goFile("a") + "// Nobody heeds it.\ntype T struct{ bearings int }\n",
		"internal/b/a.go":      goFile("b") + "func (t T) depose() {}\nfunc (t T) heed() {}\n",
		"internal/c/a.go":      goFile("c"),
	})
	checkViolations(t, checkWords(tree, map[string]string{"internal/b": "depose", "internal/c": "heed"}), []string{
		"cmd/a/a.go:2: the word \"depose\" is retired", "internal/a/a.go:2: the word \"puts them in place whole\"", "internal/a/a.go:4: the word \"bearing\"",
		"internal/a/a_test.go:2", "internal/a/a_test.go:3", "internal/b/a.go:3", "internal/c: does not use \"heed\" any more"})
}

func checkRule(t *testing.T, name string, tree *Tree, want []string) {
	t.Helper()
	for _, rule := range Rules() {
		if rule.Name != name {
			continue
		}
		checkViolations(t, rule.Check(tree), want)
		return
	}
	t.Fatalf("there is no rule %q", name)
}

func checkViolations(t *testing.T, got []Violation, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d violations, want %d:\n%v", len(got), len(want), got)
	}
	seen := fmt.Sprint(got)
	for _, w := range want {
		if !strings.Contains(seen, w) {
			t.Errorf("no violation %q in\n%v", w, got)
		}
	}
}

func TestArchitecture(t *testing.T) {
	var table strings.Builder
	for n, patterns := range Floors() {
		fmt.Fprintf(&table, "| %d | `%s` | |\n", n, strings.Join(patterns, "`, `"))
	}
	tree := "```text\ncmd/\n  atys/       the command\ninternal/\n  proc/       what runs\n```\n"
	code := map[string]string{"cmd/atys/a.go": goFile("main"), "internal/proc/a.go": goFile("proc")}
	with := func(doc string, more ...string) *Tree {
		files := map[string]string{"ARCHITECTURE.md": doc}
		for name, text := range code {
			files[name] = text
		}
		for _, name := range more {
			files[name] = goFile("x")
		}
		return load(t, files)
	}
	checkRule(t, "ArchitectureTellsTheFloors", with(table.String()), nil)
	checkRule(t, "ArchitectureTellsTheFloors", with(strings.Replace(table.String(), "`proc`", "`process`", 1)), []string{"floor 2 reads"})
	checkRule(t, "ArchitectureTellsTheFloors", with(table.String()+"| 9 | `roof` | |\n"), []string{"floor 9"})
	checkRule(t, "ArchitectureTellsTheTree", with(tree), nil)
	checkRule(t, "ArchitectureTellsTheTree", with(tree, "internal/proc/deep/a.go"), nil)
	checkRule(t, "ArchitectureTellsTheTree", with(tree, "internal/spool/a.go"), []string{"does not list internal/spool/"})
	checkRule(t, "ArchitectureTellsTheTree", with(strings.Replace(tree, "proc/", "prock/", 1)), []string{"lists internal/prock/", "does not list internal/proc/"})
}

// TestScript runs scripts, because what counts is what bash makes of them.
func TestScript(t *testing.T) {
	tests := []struct {
		name, doc string
		ok        bool
		want      string
	}{
		{"one shell per document", "```sh\ncd sub; X=1\n```\ntext\n```sh\necho $X $(basename $PWD)\n```\n", true, "1 sub"},
		{"first failure ends it", "```sh\nfalse\necho reached\n```\n", false, ""},
		{"failure inside a pipe", "```sh\nfalse | cat\necho reached\n```\n", false, ""},
		{"failure inside a function", "```sh\nf() { false; true; }\nf\necho reached\n```\n", false, ""},
		{"cut off by its reader", "```sh\nyes | head -1\n```\n", true, "y"},
		{"a condition is no failure", "```sh\nif false; then echo a; else echo b; fi\n```\n", true, "b"},
		{"not run", "<!-- not run: it never ends -->\n\n```sh\nexit 3\n```\n```sh\necho fine\n```\n", true, "fine"},
		{"the reason belongs to one block", "<!-- not run: it never ends -->\n```sh\ntrue\n```\n```sh\nexit 3\n```\n", false, ""},
		{"other languages", "```text\nexit 3\n```\n```sh\necho fine\n```\n", true, "fine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("bash", "-c", Script(Blocks("README.md", []byte(tt.doc))))
			cmd.Dir = dir
			out, err := cmd.Output()
			if (err == nil) != tt.ok {
				t.Fatalf("err = %v, want ok = %v", err, tt.ok)
			}
			if got := strings.TrimSpace(string(out)); got != tt.want {
				t.Errorf("printed %q, want %q", got, tt.want)
			}
		})
	}
}
