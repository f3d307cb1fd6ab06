package spec

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
)

// Selector chooses series or targets by their labels. It is written as in
// PromQL: {service="checkout",instance=~"web-.*"}. The zero value chooses all.
type Selector []Matcher

// Matcher is one condition on a label. A label that is missing is empty.
type Matcher struct {
	Label   string
	Op      Op
	Value   string
	Values  []string // of In and NotIn, sorted
	pattern *regexp.Regexp
}

// OneOf is the condition that a label has one of some values.
func OneOf(label string, values []string) Matcher {
	return Matcher{Label: label, Op: In, Values: slices.Sorted(slices.Values(values))}
}

// NoneOf is the condition that a label has none of some values.
func NoneOf(label string, values []string) Matcher {
	return Matcher{Label: label, Op: NotIn, Values: slices.Sorted(slices.Values(values))}
}

// Op compares a label with a value.
type Op string

// The operators of PromQL. Patterns match the whole of a label.
const (
	Equal    Op = "="
	NotEqual Op = "!="
	Match    Op = "=~"
	NotMatch Op = "!~"
)

// Operators that only code uses. A selector writes them as patterns.
const (
	In    Op = "in"
	NotIn Op = "not in"
)

// Bounds of a selector, for strangers write them: each series is asked for each
// condition, and what a few bytes of pattern compile to may take megabytes.
const (
	maxMatchers     = 16
	maxPattern      = 1024   // bytes
	maxPatternSteps = 10_000 // with all repetitions written out
)

// ParseSelector reads a selector. The braces may be left out where there is
// nothing in them.
func ParseSelector(text string) (Selector, error) {
	p := &parser{text: text, rest: strings.TrimSpace(text)}
	if p.rest == "" {
		return nil, nil
	}
	if !p.skip("{") {
		return nil, p.errorf(`want {label="value",...}`)
	}
	var s Selector
	for !p.skip("}") {
		if len(s) > 0 && !p.skip(",") {
			return nil, p.errorf(`want "," or "}"`)
		}
		if len(s) > 0 && p.skip("}") { // a comma at the end
			break
		}
		m, err := p.matcher()
		if err != nil {
			return nil, err
		}
		if s = append(s, m); len(s) > maxMatchers {
			return nil, p.errorf("more conditions than the %d that are taken", maxMatchers)
		}
	}
	if p.rest != "" {
		return nil, p.errorf("want nothing more")
	}
	return s, nil
}

// Matches tells whether labels fulfil every condition.
func (s Selector) Matches(labels profile.Labels) bool {
	for i := range s {
		if !s[i].matches(labels[s[i].Label]) {
			return false
		}
	}
	return true
}

// String writes the selector so that ParseSelector reads the same.
func (s Selector) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		op, value := m.Op, m.Value
		if op == In || op == NotIn {
			quoted := make([]string, len(m.Values))
			for i, v := range m.Values {
				quoted[i] = regexp.QuoteMeta(v)
			}
			value = strings.Join(quoted, "|")
			if op = Match; m.Op == NotIn {
				op = NotMatch
			}
		}
		b.WriteString(m.Label + string(op) + strconv.Quote(value))
	}
	b.WriteByte('}')
	return b.String()
}

func (m *Matcher) matches(value string) bool {
	switch m.Op {
	case Equal:
		return value == m.Value
	case NotEqual:
		return value != m.Value
	case Match:
		return m.pattern.MatchString(value)
	case In, NotIn:
		_, found := slices.BinarySearch(m.Values, value)
		return found == (m.Op == In)
	}
	return !m.pattern.MatchString(value)
}

// parser reads a selector from left to right.
type parser struct{ text, rest string }

func (p *parser) errorf(format string, args ...any) error {
	at := len(p.text) - len(p.rest)
	return fmt.Errorf("selector %.300q, at %d: %s", p.text, at, fmt.Sprintf(format, args...))
}

// skip takes a word and the space behind it, if it comes next.
func (p *parser) skip(word string) bool {
	rest, ok := strings.CutPrefix(p.rest, word)
	if ok {
		p.rest = strings.TrimLeft(rest, " \t\n")
	}
	return ok
}

func (p *parser) matcher() (m Matcher, err error) {
	n := 0
	for n < len(p.rest) && labelByte(p.rest[n]) {
		n++
	}
	if n == 0 {
		return m, p.errorf("want the name of a label")
	}
	m.Label = p.rest[:n]
	p.rest = strings.TrimLeft(p.rest[n:], " \t\n")
	for _, op := range []Op{Match, NotMatch, NotEqual, Equal} { // the longer ones first
		if p.skip(string(op)) {
			m.Op = op
			break
		}
	}
	if m.Op == "" {
		return m, p.errorf("want =, !=, =~ or !~ after %q", m.Label)
	}
	quoted, err := p.quoted()
	if err != nil {
		return m, p.errorf("want a value in quotes after %s%s", m.Label, m.Op)
	}
	if m.Value, err = unquote(quoted); err != nil {
		return m, p.errorf("%v", err)
	}
	if m.Op == Match || m.Op == NotMatch {
		if m.pattern, err = compile(m.Value); err != nil {
			return m, p.errorf("%v", err)
		}
	}
	p.skip(quoted)
	return m, nil
}

// quoted is the string that comes next: in double or single quotes, or backticks.
func (p *parser) quoted() (string, error) {
	if !strings.HasPrefix(p.rest, "'") {
		return strconv.QuotedPrefix(p.rest)
	}
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '\'':
			return p.rest[:i+1], nil
		}
	}
	return "", strconv.ErrSyntax
}

// unquote is what a string means. Single quotes hold what double ones do, which Go
// knows of one character alone.
func unquote(quoted string) (string, error) {
	if quoted[0] != '\'' {
		return strconv.Unquote(quoted)
	}
	var b strings.Builder
	for rest := quoted[1 : len(quoted)-1]; rest != ""; {
		r, multibyte, tail, err := strconv.UnquoteChar(rest, '\'')
		if err != nil {
			return "", err
		}
		if rest = tail; r < utf8.RuneSelf || !multibyte {
			b.WriteByte(byte(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String(), nil
}

// compile compiles a pattern of the whole of a label, unless it is too large.
func compile(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("a pattern of %d bytes: at most %d are taken", len(pattern), maxPattern)
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil { // one such as a)|(b would close the group it is put in
		return nil, err
	}
	whole := "^(?s:" + pattern + ")$"
	parsed, err := syntax.Parse(whole, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if n := steps(parsed); n > maxPatternSteps {
		return nil, fmt.Errorf("a pattern that has %d steps with its repetitions written out: at most %d are taken", n, maxPatternSteps)
	}
	return regexp.Compile(whole)
}

// steps is about how large a pattern is once it is compiled. Repetitions are
// written out then, but share their classes of characters; parsing bounds them
// to a thousand, within each other too.
func steps(r *syntax.Regexp) int {
	n := 1 + len(r.Rune)
	if r.Op == syntax.OpCharClass {
		n = 1 + len(r.Rune)/32
	}
	for _, sub := range r.Sub {
		n += steps(sub)
	}
	if r.Op == syntax.OpRepeat {
		n *= max(r.Min+1, r.Max)
	}
	return n
}

// labelByte is what names of labels are made of: those of OpenTelemetry have dots.
func labelByte(c byte) bool {
	return c == '_' || c == '.' || c == '/' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
