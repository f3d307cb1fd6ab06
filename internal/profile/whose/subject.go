package whose

import (
	"regexp"
	"strings"

	"atys.dev/atys/internal/profile"
)

// subject is what rules look at of a frame.
type subject struct {
	frame  profile.Frame
	file   string // source file or script
	binary string // executable or library its machine code is in
	name   string // the function's, with dots between packages; see plainName
	goCode bool
	java   bool // it is, or may be, of a class of Java
}

func subjectOf(f profile.Frame) subject {
	s := subject{frame: f, file: f.File, name: plainName(f), goCode: isGo(f), java: isJava(f)}
	mapping := strings.TrimSuffix(f.Mapping, " (deleted)")
	switch f.Kind {
	case profile.KindNative, profile.KindUnknown:
		s.binary = mapping
	case profile.KindKernel, profile.KindJIT:
	default: // a script
		if s.file == "" {
			s.file = mapping
		}
	}
	if s.file == "" && (f.Kind == profile.KindJIT || f.Kind == profile.KindUnknown) {
		s.file = fileInName(f.Function)
	}
	s.file = strings.TrimPrefix(s.file, "file://")
	return s
}

// fileInNames are the ways in which names hold the file of their function:
// "serve (shop.py:10)" of py-spy, "JS:*serve /app/shop.js:3:14" in the maps of
// node, "py::serve:/app/shop.py" in those of CPython.
var fileInNames = []*regexp.Regexp{
	regexp.MustCompile(`^.* \(([^()]+?)(?::\d+)?\)$`),
	regexp.MustCompile(`^(?:JS|LazyCompile|Function|Eval|Script|EvalScript):.* ([^ ]+?):\d+(?::\d+)?$`),
	regexp.MustCompile(`^py::[^:]*:(.+)$`),
}

func fileInName(function string) string {
	for _, re := range fileInNames {
		if m := re.FindStringSubmatch(function); m != nil {
			return m[1]
		}
	}
	return ""
}

// plainName is a function's name as package patterns are compared with it:
// without what stands before the package in names of Rust and C++ ("<", "&",
// a return type), and as Java writes it, with dots for slashes.
func plainName(f profile.Frame) string {
	name := f.Function
	switch f.Kind {
	case profile.KindJavaCompiled, profile.KindJavaInterpreted, profile.KindJIT, profile.KindUnknown:
		if open := strings.IndexByte(name, '('); open > 0 {
			name = name[:open]
		}
		if !isGo(f) {
			name = strings.ReplaceAll(name, "/", ".")
		}
	case profile.KindNative:
		name = strings.TrimLeft(name[returnType(name):], "<&*")
	}
	return name
}

// returnType is how long the return type is that a demangled template of C++
// begins with, its space included.
func returnType(name string) (length int) {
	depth := 0
	for i := range len(name) {
		switch name[i] {
		case '<':
			depth++
		case '>':
			depth--
		case '(':
			return length
		case ' ':
			if depth == 0 && strings.Contains(name[i:], "::") {
				length = i + 1
			}
		}
	}
	return length
}

// isGo tells code of Go by its source file, which Go's own tables name.
func isGo(f profile.Frame) bool {
	return strings.HasSuffix(f.File, ".go") || strings.HasSuffix(f.File, ".s") && f.Kind == profile.KindNative
}

// isJava tells what may be named as Java names things: packages and a class.
func isJava(f profile.Frame) bool {
	switch f.Kind {
	case profile.KindJavaCompiled, profile.KindJavaInterpreted:
		return true
	case profile.KindJIT, profile.KindUnknown:
		return !isGo(f)
	}
	return false
}

// inPackage tells whether a function's name lies in a package, a type, or is
// itself what is asked for.
func inPackage(name, pkg string) bool {
	rest, ok := strings.CutPrefix(name, pkg)
	return ok && (rest == "" || strings.IndexByte("./:([$", rest[0]) >= 0)
}
