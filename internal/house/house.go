// Package house tests the tree it stands in: who may import whom, how large things grow, what must be said where.
//
// The flow:
//
//	Load       reads the tree once: every text file, every Go file parsed
//	Rules      pure functions from a Tree to the places that break them
//	house_test runs every rule over this repository, one subtest each
//
// The tree is parsed in-process: a test that shells out to `go list` is
// served from the test cache, because the cache cannot see what it read.
//
// Commands shown in the documents are executed by a test of their own
// (`make test-docs`); see Script.
package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"sort"
	"strings"
)

// Module is the module path of this repository.
const Module = "atys.dev/atys"

// A Tree is a repository, read once.
type Tree struct {
	Fset     *token.FileSet
	Texts    []Text     // every text file, in path order
	Packages []*Package // every directory with Go files, in path order
	Dirs     []string   // every directory that holds a file somewhere below
}

// A Text is one text file.
type Text struct {
	Path string // slash-separated, from the root of the tree
	Data []byte
}

// A Package is the Go files of one directory, whatever their build tags.
type Package struct {
	Dir   string // slash-separated, from the root of the tree
	Files []*File
}

// A File is one parsed Go file.
type File struct {
	Path      string
	Syntax    *ast.File
	Lines     int
	Generated bool
}

// Test reports whether only `go test` compiles f.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// A Violation is one place that breaks a rule.
type Violation struct {
	Path string
	Line int // 0: the file or directory as a whole
	Text string
}

func (v Violation) String() string {
	if v.Line == 0 {
		return v.Path + ": " + v.Text
	}
	return fmt.Sprintf("%s:%d: %s", v.Path, v.Line, v.Text)
}

// maxText bounds the files whose text the rules read: what is larger is data.
const maxText = 4 << 20

// Load reads the tree below fsys. Hidden directories (but .ci), build
// output and node_modules are not part of it; testdata is part of its texts,
// not of its packages.
func Load(fsys fs.FS) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet()}
	packages := map[string]*Package{}
	dirs := map[string]bool{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if outside(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || name == ".git" { // a worktree has a file of that name, which tells whose it is
			return nil
		}
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
		return t.add(fsys, name, packages)
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	for _, p := range packages {
		t.Packages = append(t.Packages, p)
	}
	sort.Slice(t.Packages, func(i, j int) bool { return t.Packages[i].Dir < t.Packages[j].Dir })
	for dir := range dirs {
		t.Dirs = append(t.Dirs, dir)
	}
	sort.Strings(t.Dirs)
	return t, nil
}

// outside reports whether a directory is no part of the sources.
func outside(dir string) bool {
	base := path.Base(dir)
	if strings.HasPrefix(base, ".") && base != "." && dir != ".ci" {
		return true
	}
	return base == "node_modules" || dir == "bin"
}

func (t *Tree) add(fsys fs.FS, name string, packages map[string]*Package) error {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	if len(data) <= maxText && !bytes.Contains(data[:min(len(data), 8000)], []byte{0}) {
		t.Texts = append(t.Texts, Text{Path: name, Data: data})
	}
	if path.Ext(name) != ".go" || inTestdata(name) {
		return nil
	}
	syntax, err := parser.ParseFile(t.Fset, name, data, parser.ParseComments)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	p := packages[dir]
	if p == nil {
		p = &Package{Dir: dir}
		packages[dir] = p
	}
	p.Files = append(p.Files, &File{
		Path:      name,
		Syntax:    syntax,
		Lines:     lines(data),
		Generated: ast.IsGenerated(syntax) || generatedName(name),
	})
	return nil
}

// functions yields the functions that are not generated, with their files.
func (t *Tree) functions(yield func(*File, *ast.FuncDecl) bool) {
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			for _, d := range f.Syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && !yield(f, fn) {
					return
				}
			}
		}
	}
}

func inTestdata(name string) bool {
	return strings.HasPrefix(name, "testdata/") || strings.Contains(name, "/testdata/")
}

// generatedName knows the files of generators that bpf2go and protoc name.
func generatedName(name string) bool {
	return strings.HasSuffix(name, "_bpfel.go") || strings.HasSuffix(name, ".pb.go")
}

func lines(data []byte) int {
	n := bytes.Count(data, []byte{'\n'})
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}
