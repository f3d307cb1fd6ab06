package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// listing prints the code objects of a source as a CPython with co_qualname
// knows them: first line, name, qualified name.
const listing = `
import sys, types
def walk(path, code):
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            print(path, c.co_firstlineno, c.co_name, c.co_qualname)
            walk(path, c)
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        walk(path, compile(f.read(), path, "exec"))
`

// newPython finds an interpreter of 3.11 or later.
func newPython(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	paths, _ := filepath.Glob(home + "/.pyenv/versions/3.1[1-9]*/bin/python3")
	for _, path := range append(paths, "/usr/bin/python3") {
		if err := exec.Command(path, "-c", "(lambda: 0).__code__.co_qualname").Run(); err == nil {
			return path
		}
	}
	t.Skip("no CPython of 3.11 or later to compare with")
	return ""
}

// TestQualifiedAgainstCPython compares with what the compiler says of a large
// part of the standard library.
func TestQualifiedAgainstCPython(t *testing.T) {
	interpreter := newPython(t)
	library, err := exec.Command(interpreter, "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths, _ := filepath.Glob(strings.TrimSpace(string(library)) + "/*.py")
	if len(paths) < 50 {
		t.Fatalf("%d sources only", len(paths))
	}
	paths = paths[:50]
	out, err := exec.Command(interpreter, append([]string{"-c", listing}, paths...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	scopes := map[string][]scope{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		scopes[path] = scopesOf(text)
	}
	all, plain := 0, 0
	for _, row := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.SplitN(row, " ", 4)
		path, name, want := fields[0], fields[2], fields[3]
		line, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		all++
		got := qualified(scopes[path], name, line)
		switch {
		case got == want:
		case strings.HasPrefix(name, "<"): // nested in each other, or in a default
			plain++
		default:
			t.Errorf("%s:%d: %s is %q, want %q", filepath.Base(path), line, name, got, want)
		}
	}
	t.Logf("%d names, %d of lambdas and comprehensions less qualified", all, plain)
	if all < 1000 || plain*100 > all*5 {
		t.Errorf("%d names compared, %d of them less qualified", all, plain)
	}
}

func TestQualified(t *testing.T) {
	const source = `"""def no(): pass"""
import os
class A(object):
	x = '''
def no(): pass
'''
	@staticmethod
	@other(1,
		2)
	def method(a, b=lambda: 0):
		def nested():
			return [i for i in a]
		return nested

	async  def later(self): pass
def f(a,
  b):
    # comment
    return lambda: 1
class B: pass
x = lambda: 2
`
	scopes := scopesOf([]byte(source))
	for _, tt := range []struct {
		line       int
		name, want string
	}{
		{3, "A", "A"},
		{7, "method", "A.method"},
		{10, "method", "A.method"},
		{10, "<lambda>", "<lambda>"},
		{11, "nested", "A.method.<locals>.nested"},
		{12, "<listcomp>", "A.method.<locals>.nested.<locals>.<listcomp>"},
		{15, "later", "A.later"},
		{16, "f", "f"},
		{19, "<lambda>", "f.<locals>.<lambda>"},
		{20, "B", "B"},
		{21, "<lambda>", "<lambda>"},
		{5, "no", "no"},
		{1, "no", "no"},
		{4, "method", "method"},
	} {
		if got := qualified(scopes, tt.name, tt.line); got != tt.want {
			t.Errorf("line %d: %s is %q, want %q", tt.line, tt.name, got, tt.want)
		}
	}
}

func FuzzScopes(f *testing.F) {
	f.Add([]byte("class A:\n  @x\n  def f(self):\n    return (1,\n2)\n"))
	f.Add([]byte("def f(): '''\n\\"))
	f.Add([]byte("\tdef \\\n f(\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := strings.Count(string(text), "\n") + 1
		for _, s := range scopesOf(text) {
			if s.first < 1 || s.first > s.line || s.line > lines || s.last > lines || !strings.HasSuffix(s.qualified, s.name) {
				t.Errorf("%+v of %d lines", s, lines)
			}
		}
	})
}
