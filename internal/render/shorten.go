package render

import (
	"regexp"
	"strings"
)

var (
	parameters     = regexp.MustCompile(`([\w>\]])\([^()]*\)(?: const)?$`)
	typeParameters = regexp.MustCompile(`(\w)<[^<>]*>`)

	directories = regexp.MustCompile(`^.*/(.+)$`)      // of a Go package
	namespaces  = regexp.MustCompile(`^.*::(.+)$`)     // of C++ and Rust
	receiver    = regexp.MustCompile(`^.*\)\.(\w.*)$`) // of a Go method
	javaPackage = regexp.MustCompile(`^(?:[\w$]+\.)+([A-Z][\w$]*\.[\w$<>]+)$`)
)

// shorten gives a function's name without what helps least, as far as needed
// for fits to accept it: parameters and type parameters first, then the path
// of its package, then what else qualifies it. viewer/text.js does the same.
func shorten(name string, fits func(string) bool) string {
	if fits(name) {
		return name
	}
	short := name
	if !strings.Contains(name, "operator") {
		short = parameters.ReplaceAllString(short, "$1")
		for before := ""; before != short; {
			before, short = short, typeParameters.ReplaceAllString(short, "$1")
		}
	}
	for _, prefix := range [...]*regexp.Regexp{directories, namespaces, receiver, javaPackage} {
		if fits(short) {
			return short
		}
		if m := prefix.FindStringSubmatch(short); m != nil {
			short = m[1]
		}
	}
	return short
}
