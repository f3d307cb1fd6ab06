package perfscript

import (
	"bytes"
	"path"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// header is the first line of a sample. Any of its fields may be missing:
//
//	comm pid/tid [cpu] misc time: period event: trace or frame
type header struct {
	comm     string
	pid, tid int // a single number is a thread: perf prints it as tid by default
	cpu      int
	time     time.Duration
	timed    bool
	period   int64
	event    string
	rest     string // what follows the event
}

// parseHeader parses a header. Names of threads may hold spaces and numbers:
// the header starts where the rest of the line follows the form above. Within
// an open sample only a line with a time or an event is taken for a header.
func parseHeader(text string, open bool) (header, bool) {
	const most = 24 // names have 15 bytes, so the form begins within the first few words
	rest := text
	for range most {
		h, ok := parseFields(rest)
		if ok && !(open && h.event == "" && !h.timed) {
			h.comm = strings.TrimRight(text[:len(text)-len(rest)], " \t")
			return h, true
		}
		i := strings.IndexAny(rest, " \t")
		if i < 0 {
			break
		}
		rest = strings.TrimLeft(rest[i:], " \t")
	}
	return header{}, false
}

// parseFields parses a header from its process on; false unless it has one
// field that says something, and nothing is left but what follows an event.
func parseFields(text string) (h header, ok bool) {
	word, rest := cutWord(text)
	some := false
	next := func() { word, rest = cutWord(rest); some = true }
	if pid, tid, ok := parseIDs(word); ok {
		h.pid, h.tid = pid, tid
		next()
	}
	if n := len(word); n > 2 && word[0] == '[' && word[n-1] == ']' {
		if cpu, ok := parseNumber(word[1 : n-1]); ok && cpu < 1<<20 {
			h.cpu = int(cpu)
			next()
		}
	}
	if some && isMisc(word) {
		next()
	}
	if at, ok := parseTime(word); ok {
		h.time, h.timed = at, true
		next()
	}
	if period, ok := parseNumber(word); ok && some {
		h.period = period
		next()
	}
	if n := len(word); n > 1 && word[n-1] == ':' && (word[0] < '0' || word[0] > '9') && (some || rest == "") {
		h.event, h.rest = word[:n-1], rest
		return h, true
	}
	return h, some && word == "" && h.period == 0
}

func cutWord(text string) (word, rest string) {
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], strings.TrimLeft(text[i:], " \t")
	}
	return text, ""
}

func parseIDs(word string) (pid, tid int, ok bool) {
	first, second, both := strings.Cut(word, "/")
	a, ok := parseID(first)
	if !ok || !both {
		return 0, a, ok
	}
	b, ok := parseID(second)
	return a, b, ok
}

// parseID takes -1 too: perf prints it where it does not know.
func parseID(word string) (int, bool) {
	if word == "-1" {
		return 0, true
	}
	n, ok := parseNumber(word)
	return int(n), ok && n < 1<<31
}

func parseNumber(word string) (int64, bool) {
	if word == "" || word[0] < '0' || word[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(word, 10, 64)
	return n, err == nil
}

// isMisc recognises the misc field: the mode and flags of a sample, as letters.
func isMisc(word string) bool {
	return word != "" && len(word) <= 4 && strings.Trim(word, "UKHGMEST") == ""
}

// parseTime parses seconds.fraction: without rounding, so that order is kept.
func parseTime(word string) (time.Duration, bool) {
	word, ok := strings.CutSuffix(word, ":")
	seconds, fraction, dot := strings.Cut(word, ".")
	s, whole := parseNumber(seconds)
	if !ok || !dot || !whole || fraction == "" || len(fraction) > 9 || s > 1<<32 {
		return 0, false
	}
	f, digits := parseNumber(fraction + strings.Repeat("0", 9-len(fraction)))
	return time.Duration(s)*time.Second + time.Duration(f), digits
}

// withoutModifiers cuts :u, :ppp and their like off an event's name.
func withoutModifiers(name string) string {
	if head, modifiers, ok := cutLast(name, ":"); ok && head != "" && strings.Trim(modifiers, "ukhGHpPSDWIeb") == "" {
		return head
	}
	return name
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// frame is one line of a stack.
type frame struct {
	text    string // all but the address, and "k" before it for kernel addresses
	symbol  string
	dso     string
	kernel  bool // by its address
	inlined bool
	file    string
	line    int
}

// parseFrame parses "address symbol+0xoffset (dso)"; all but the address may be missing.
func parseFrame(text []byte) (f frame, ok bool) {
	n := 0
	for n < len(text) && isHex(text[n]) {
		n++
	}
	if n == 0 || n > 16 || n < len(text) && text[n] != ' ' && text[n] != '\t' {
		return frame{}, false
	}
	f.kernel = n == 16 && (text[0] == 'f' || text[0] == 'F')
	rest := string(bytes.TrimLeft(text[n:], " \t"))
	if f.text = rest; f.kernel {
		f.text = "k" + rest
	}
	f.symbol = rest
	if open := dsoStart(rest); open >= 0 {
		f.symbol, f.dso = strings.TrimRight(rest[:open], " \t"), rest[open+1:len(rest)-1]
	}
	if f.inlined = f.dso == "inlined"; f.inlined {
		f.dso = ""
	}
	f.dso, _ = cutOffset(strings.TrimSuffix(f.dso, " (deleted)"))
	f.symbol, _ = cutOffset(f.symbol)
	return f, true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// dsoStart finds the bracket that opens the group the line ends with, where
// that group stands apart: "f(int)" ends in no dso. -1 if there is none.
func dsoStart(s string) int {
	if !strings.HasSuffix(s, ")") {
		return -1
	}
	depth := 0
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				if i == 0 || s[i-1] == ' ' || s[i-1] == '\t' {
					return i
				}
				return -1
			}
		}
	}
	return -1
}

// cutOffset cuts a final +0x12 off.
func cutOffset(s string) (name, offset string) {
	head, digits, ok := cutLast(s, "+0x")
	if !ok || digits == "" || strings.ContainsFunc(digits, func(r rune) bool { return r > 0x7f || !isHex(byte(r)) }) {
		return s, ""
	}
	return head, digits
}

// named gives the frame a line names. A place without a symbol is named by its
// file alone: addresses mean nothing outside the process they were seen in.
func (f frame) named() profile.Frame {
	out := profile.Frame{Function: f.symbol, Mapping: f.dso, File: f.file, Line: f.line, Inlined: f.inlined, Kind: f.kind()}
	if out.Mapping == "[unknown]" {
		out.Mapping = ""
	}
	if out.Function == "" || out.Function == "[unknown]" {
		out.Function = "[unknown]"
		if base := strings.Trim(path.Base("/"+out.Mapping), "[]/"); base != "" {
			out.Function = "[" + base + "]"
		}
	}
	return out
}

func (f frame) kind() profile.Kind {
	base := path.Base(f.dso)
	switch {
	case f.kernel, strings.HasPrefix(f.dso, "[kernel"), strings.HasPrefix(f.dso, "[guest.kernel"),
		strings.HasSuffix(base, ".ko"), strings.Contains(base, ".ko."):
		return profile.KindKernel
	case f.dso == "" || f.dso == "[unknown]":
		return profile.KindUnknown
	case strings.HasPrefix(base, "perf-") && strings.HasSuffix(base, ".map"), strings.HasPrefix(f.dso, "//anon"), f.dso == "[anon]",
		strings.HasPrefix(base, "jitted-"):
		return profile.KindJIT
	}
	return profile.KindNative
}
