package whose

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
)

// Rules are what a file of rules says, in its order. A line is
//
//	class  matcher  pattern [pattern...]   # a comment
//
// with "quotes" around a pattern that holds spaces or a #.
type Rules struct{ rules []rule }

type rule struct {
	class    profile.Class
	matcher  matcher
	patterns []pattern
}

type pattern struct {
	text string
	re   *regexp.Regexp // of globs and expressions
	kind profile.Kind
}

// matcher is what of a frame a rule looks at.
type matcher string

const (
	byFile     matcher = "file"     // glob of the source file or script
	byBinary   matcher = "binary"   // glob of the executable or library
	byFunction matcher = "function" // regular expression for the function's name
	byPackage  matcher = "package"  // packages, of any language
	byGo       matcher = "go"       // packages, of Go
	byJava     matcher = "java"     // packages, of Java and what else runs on the JVM
	byDotNet   matcher = "dotnet"   // namespaces, of .NET
	byKind     matcher = "kind"     // what executes the frame, as in JSON
)

func matchers() []matcher {
	return []matcher{byFile, byBinary, byFunction, byPackage, byGo, byJava, byDotNet, byKind}
}

// Bounds of what a file of rules may hold; nobody writes as many.
const (
	maxRules   = 10_000
	maxPattern = 1_000
)

//go:embed builtin.rules
var builtinText string

// Builtin gives the rules that come with atys.
func Builtin() *Rules {
	r, err := Parse(builtinText)
	if err != nil {
		panic("builtin.rules: " + err.Error())
	}
	return r
}

// Parse reads rules. Errors name their line.
func Parse(text string) (*Rules, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("this is no text: rules are lines of a class, a matcher and patterns")
	}
	r := &Rules{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields, err := split(line)
		if err == nil && len(fields) > 0 {
			err = r.add(fields)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return r, nil
}

func (r *Rules) add(fields []string) error {
	class := profile.ParseClass(fields[0])
	if class == profile.ClassUnknown {
		return fmt.Errorf("class %q: want application, library, runtime or kernel", excerpt(fields[0]))
	}
	if len(fields) == 1 {
		return fmt.Errorf("%s: what? want a matcher (%s) and patterns", class, matcherNames())
	}
	made := rule{class: class, matcher: matcher(fields[1])}
	if !slices.Contains(matchers(), made.matcher) {
		return fmt.Errorf("matcher %q: want %s", excerpt(fields[1]), matcherNames())
	}
	if len(fields) == 2 {
		return fmt.Errorf("%s %s: no pattern follows", class, made.matcher)
	}
	for _, text := range fields[2:] {
		p, err := newPattern(made.matcher, text)
		if err != nil {
			return fmt.Errorf("%s %q: %w", made.matcher, excerpt(text), err)
		}
		made.patterns = append(made.patterns, p)
	}
	if len(r.rules) == maxRules {
		return fmt.Errorf("more than %d rules", maxRules)
	}
	r.rules = append(r.rules, made)
	return nil
}

func newPattern(m matcher, text string) (p pattern, err error) {
	if len(text) > maxPattern {
		return p, fmt.Errorf("longer than %d bytes", maxPattern)
	}
	p.text = text
	switch m {
	case byFile, byBinary:
		p.re, err = compileGlob(text)
	case byFunction:
		p.re, err = regexp.Compile(text)
	case byPackage, byGo, byJava, byDotNet:
		p.text = strings.TrimRight(text, "./:*")
	case byKind:
		if p.kind = profile.ParseKind(text); p.kind == profile.KindUnknown {
			return p, errors.New("no such kind: want one that \"atys report --json\" shows, such as native or python")
		}
	}
	if err == nil && p.text == "" {
		err = errors.New("an empty pattern")
	}
	return p, err
}

// matches tells whether a pattern of a matcher fits.
func (p pattern) matches(m matcher, s subject) bool {
	switch m {
	case byFile:
		return s.file != "" && p.re.MatchString(s.file)
	case byBinary:
		return s.binary != "" && p.re.MatchString(s.binary)
	case byFunction:
		return p.re.MatchString(s.frame.Function)
	case byKind:
		return s.frame.Kind == p.kind
	case byGo:
		return s.goCode && inPackage(s.name, p.text)
	case byJava:
		return s.java && inPackage(s.name, p.text)
	case byDotNet:
		return s.frame.Kind == profile.KindDotNet && inPackage(s.name, p.text)
	}
	return inPackage(s.name, p.text)
}

// split splits a line at its spaces, with respect for quotes and comments.
func split(line string) (fields []string, err error) {
	line = strings.TrimSpace(line)
	for line != "" && line[0] != '#' {
		var field string
		if line[0] == '"' {
			end := strings.IndexByte(line[1:], '"')
			if end < 0 {
				return nil, errors.New("a quote has no end")
			}
			field, line = line[1:1+end], line[2+end:]
			if line != "" && line[0] != ' ' && line[0] != '\t' {
				return nil, fmt.Errorf("%q: a space must follow the quote", excerpt(field))
			}
		} else {
			end := strings.IndexAny(line, " \t")
			if end < 0 {
				end = len(line)
			}
			if strings.IndexByte(line[:end], '"') >= 0 {
				return nil, fmt.Errorf("%q: a quote begins inside: quote all of the pattern, which cannot hold quotes", excerpt(line[:end]))
			}
			field, line = line[:end], line[end:]
		}
		fields = append(fields, field)
		line = strings.TrimLeft(line, " \t")
	}
	return fields, nil
}

// String writes rules as Parse reads them.
func (r *Rules) String() string {
	var b strings.Builder
	for _, rule := range r.rules {
		fmt.Fprintf(&b, "%s %s", rule.class, rule.matcher)
		for _, p := range rule.patterns {
			if strings.ContainsAny(p.text, " \t#") {
				fmt.Fprintf(&b, " \"%s\"", p.text)
			} else {
				b.WriteString(" " + p.text)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func matcherNames() string {
	names := make([]string, len(matchers()))
	for i, m := range matchers() {
		names[i] = string(m)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// excerpt shortens foreign text for a message.
func excerpt(text string) string {
	const most = 60
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
