package python

import (
	"bytes"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// Until 3.10 a code object knows its name, but not the class or function that
// it was defined in: "run", where 3.11 tells "Worker.run". Its source tells, if
// it can be found: scopesOf reads what is defined where, and a name is only
// qualified where the very line defines it.

// sources keeps the scopes of source files. The zero value is ready.
type sources struct {
	files map[sourceFile][]scope
}

// sourceFile is one state of one file.
type sourceFile struct {
	device, inode uint64
	changed       unix.Timespec
	size          int64
}

const (
	maxSources = 4096
	maxSource  = 8 << 20
)

// qualify gives the qualified name of a function of a process, as far as its
// source tells. The file is the one that one of the processes given sees: a
// child may be gone already, but not what it was forked from.
func (s *sources) qualify(f *function, pids ...int) string {
	if strings.HasPrefix(f.file, "<") || f.name == "<module>" {
		return f.name
	}
	for _, pid := range pids {
		if scopes := s.scopes(pid, f.file); scopes != nil {
			return qualified(scopes, f.name, f.first)
		}
	}
	return f.name
}

// scopes reads a file as a process names it: none where it cannot be read.
func (s *sources) scopes(pid int, at string) []scope {
	if !path.IsAbs(at) {
		directory, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
		if err != nil {
			return nil
		}
		at = path.Join(directory, at)
	}
	file, err := proc.FS{}.RootFile(pid, at)
	if err != nil {
		return nil
	}
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxSource {
		return nil
	}
	id := sourceFile{st.Dev, st.Ino, st.Mtim, st.Size}
	if known, ok := s.files[id]; ok {
		return known
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSource))
	if err != nil {
		return nil
	}
	if s.files == nil || len(s.files) >= maxSources {
		s.files = map[sourceFile][]scope{}
	}
	found := scopesOf(text)
	s.files[id] = found
	return found
}

// scope is a class or function that a source defines.
type scope struct {
	name, qualified string
	class           bool
	first           int // its first line, decorators included
	line            int // of def or class
	body            int // the line after that statement's
	last            int
	indent          int
}

// within gives the name of what is defined inside.
func (s scope) within(name string) string {
	if s.class {
		return s.qualified + "." + name
	}
	return s.qualified + ".<locals>." + name
}

// qualified finds the qualified name of what a line defines. Lambdas and
// comprehensions have the names that the compiler gives them, in brackets; they
// belong to the innermost scope around their line.
func qualified(scopes []scope, name string, line int) string {
	if strings.HasPrefix(name, "<") {
		for i := len(scopes) - 1; i >= 0; i-- {
			s := scopes[i]
			if line >= s.first && line < s.body {
				return name // in a default or a decorator: either side
			}
			if line >= s.body && line <= s.last {
				return s.within(name)
			}
		}
		return name
	}
	for _, s := range scopes {
		if s.name == name && (s.first == line || s.line == line) {
			return s.qualified
		}
	}
	return name
}

// scopesOf lists what a source defines, in its order. It does not judge the
// source: of what is not Python, anything may come, but nothing worse.
func scopesOf(text []byte) (found []scope) {
	var open []int // indices of found, outermost first
	decorated := 0 // the first line of decorators that wait for what they decorate
	end := statements(text, func(line, next, indent int, words string) {
		for len(open) > 0 && found[open[len(open)-1]].indent >= indent {
			found[open[len(open)-1]].last = line - 1
			open = open[:len(open)-1]
		}
		if strings.HasPrefix(words, "@") {
			if decorated == 0 {
				decorated = line
			}
			return
		}
		name, class := definition(words)
		if name != "" {
			s := scope{name: name, qualified: name, class: class, first: line, line: line, body: next, indent: indent}
			if decorated != 0 {
				s.first = decorated
			}
			if len(open) > 0 {
				s.qualified = found[open[len(open)-1]].within(name)
			}
			open = append(open, len(found))
			found = append(found, s)
		}
		decorated = 0
	})
	for _, i := range open {
		found[i].last = end
	}
	return found
}

// definition takes the name out of the beginning of a statement that defines.
func definition(words string) (name string, class bool) {
	keyword, rest, _ := cutSpace(words)
	if keyword == "async" {
		keyword, rest, _ = cutSpace(rest)
	}
	if keyword != "def" && keyword != "class" {
		return "", false
	}
	if i := strings.IndexAny(rest, " \t(:[\\"); i >= 0 {
		rest = rest[:i]
	}
	return rest, keyword == "class"
}

func cutSpace(s string) (before, after string, ok bool) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t"), true
}

const (
	tabWidth = 8
	maxWords = 256 // bytes of a statement that are looked at
)

// statements calls f with the first line of each statement, the line after it,
// how far it is indented, and how it begins; and gives the number of lines.
func statements(text []byte, f func(line, next, indent int, words string)) (lines int) {
	line := 1
	for len(text) > 0 {
		indent, n := indentation(text)
		text = text[n:]
		size, more, empty := statement(text)
		if !empty {
			f(line, line+more, indent, string(text[:min(size, maxWords)]))
		}
		line += more
		text = text[size:]
	}
	return line
}

func indentation(text []byte) (width, n int) {
	for n < len(text) {
		switch text[n] {
		case ' ':
			width++
		case '\t':
			width = (width/tabWidth + 1) * tabWidth
		case '\f':
			width = 0
		default:
			return width, n
		}
		n++
	}
	return width, n
}

// statement measures one: its bytes, and lines, up to and with the end of the
// line that is neither in brackets nor in a string. Nothing but a comment is empty.
func statement(text []byte) (size, lines int, empty bool) {
	depth := 0
	empty = true
	for size < len(text) {
		c := text[size]
		switch {
		case c == '\n':
			size++
			lines++
			if depth <= 0 {
				return size, lines, empty
			}
			continue
		case c == '#':
			if i := bytes.IndexByte(text[size:], '\n'); i >= 0 {
				size += i
			} else {
				size = len(text)
			}
			continue
		case c == '"' || c == '\'':
			n, more := quoted(text[size:])
			size += n
			lines += more
			empty = false
			continue
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == '\\' && size+1 < len(text) && text[size+1] == '\n':
			size++
			lines++
		}
		if c != '\r' && c != ' ' && c != '\t' && c != '\f' {
			empty = false
		}
		size++
	}
	return size, lines, empty
}

// quoted measures a string: to its closing quotes, or the end of the line where
// it has but one and is not closed.
func quoted(text []byte) (size, lines int) {
	quote := text[:1]
	long := len(text) >= 3 && text[1] == text[0] && text[2] == text[0]
	if long {
		quote = text[:3]
	}
	for size = len(quote); size < len(text); size++ {
		switch {
		case text[size] == '\\' && size+1 < len(text):
			size++
			if text[size] == '\n' {
				lines++
			}
		case bytes.HasPrefix(text[size:], quote):
			return size + len(quote), lines
		case text[size] == '\n' && !long:
			return size, lines
		case text[size] == '\n':
			lines++
		}
	}
	return size, lines
}
