// Package folded reads and writes folded stacks, the text that flame graph tools share: one line per stack, root first, then a count.
//
//	main;serve;handle GET;[libz.so];do_syscall_64_[k] 42
//
// Frames of the kernel end in _[k]. Nothing but names and one number per stack
// fits; docs/format/folded.md lists what is lost.
package folded

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"atys.dev/atys/internal/profile"
)

// Options say what Write writes. The zero value counts samples, without threads.
type Options struct {
	Type    string // kind of the value to write; "" counts samples
	Process bool   // lead each stack with its process
	Thread  bool   // lead each stack with its thread
}

// The marks at the end of a name that flame graph tools colour by. All are read; that of
// the kernel alone is written.
const (
	markKernel      = "_[k]"
	markInlined     = "_[i]"
	markJIT         = "_[j]"
	markInterpreted = "_[0]"
	markC1          = "_[1]" // async-profiler: compiled by the first tier
)

// Write writes a window's stacks, sorted by name; stacks that look the same
// are added up, and those that come to nothing left out.
func Write(w io.Writer, win *profile.Window, o Options) error {
	index := -1
	if o.Type != "" {
		if index = win.TypeIndex(o.Type); index < 0 {
			return fmt.Errorf("write folded: the profile has no value type %q", o.Type)
		}
	}
	sums := map[string]int64{}
	stacks := make([]string, len(win.Stacks))
	var line []byte
	for _, r := range win.Rows.All() {
		value := r.N
		if index >= 0 {
			value = r.Values[index]
		}
		if stacks[r.Stack] == "" {
			line = appendStack(line[:0], win, r.Stack)
			stacks[r.Stack] = string(line)
		}
		sums[lead(win.Thread(r.Thread), o)+stacks[r.Stack]] += value
	}
	lines := make([]string, 0, len(sums))
	for stack, sum := range sums {
		if sum != 0 {
			lines = append(lines, stack)
		}
	}
	slices.Sort(lines)
	out := bufio.NewWriter(w)
	for _, stack := range lines {
		line = append(line[:0], strings.TrimSuffix(stack, ";")...)
		line = append(line, ' ')
		line = strconv.AppendInt(line, sums[stack], 10)
		if _, err := out.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("write folded: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write folded: %w", err)
	}
	return nil
}

// lead gives the frames that name a row's process and thread.
func lead(t profile.Thread, o Options) string {
	var line []byte
	if o.Process && t.Process != "" {
		line = append(appendName(line, t.Process), ';')
	}
	if o.Thread && t.Name != "" {
		line = append(appendName(line, t.Name), ';')
	}
	return string(line)
}

// appendStack appends a stack's frames, each followed by a semicolon.
func appendStack(line []byte, win *profile.Window, id profile.StackID) []byte {
	if end := win.Stacks[id].End; end.Truncated() {
		line = append(line, '[')
		line = append(line, end.String()...)
		line = append(line, "];"...)
	}
	frames := win.AppendStack(nil, id)
	for _, f := range frames {
		line = appendName(line, f.Function)
		if f.Kind == profile.KindKernel {
			line = append(line, markKernel...)
		}
		line = append(line, ';')
	}
	if len(line) == 0 {
		line = append(line, noFrames+";"...)
	}
	return line
}

// Names that stand for what has none: a line needs at least one frame.
const (
	noFrames = "[no stack]"
	noName   = "[unknown]"
)

// appendName writes a name such that it stays one frame: what separates frames
// and lines, control characters, and endings that look like marks are written
// as %XX, and only as much of them as Read needs to get the name back.
func appendName(line []byte, name string) []byte {
	if name == "" {
		name = noName
	}
	marked := hasMark(name)
	for i := 0; i < len(name); i++ {
		c := name[i]
		edge := i == 0 || i == len(name)-1
		escape := c < ' ' || c == 0x7f || inC1(name, i) || c == ';' || c == ' ' && edge || c == '#' && i == 0 ||
			c == '[' && marked && i == len(name)-len("[k]") || c == '%' && escaped(name[i:])
		if escape {
			line = fmt.Appendf(line, "%%%02X", c)
			continue
		}
		line = append(line, c)
	}
	return line
}

// inC1 tells whether a byte is of one of the control characters U+0080 to
// U+009F, which some terminals interpret like an escape.
func inC1(name string, i int) bool {
	if name[i] == 0xc2 {
		return i+1 < len(name) && name[i+1] >= 0x80 && name[i+1] < 0xa0
	}
	return i > 0 && name[i-1] == 0xc2 && inC1(name, i-1)
}

func hasMark(name string) bool {
	if len(name) < len(markKernel) {
		return false
	}
	switch name[len(name)-len(markKernel):] {
	case markKernel, markInlined, markJIT, markInterpreted, markC1:
		return true
	}
	return false
}

// escaped tells whether s starts with a %XX that appendName writes.
func escaped(s string) bool {
	_, ok := unescape(s)
	return ok
}

func unescape(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	hi, lo := hexDigit(s[1]), hexDigit(s[2])
	if hi > 15 || lo > 15 {
		return 0, false
	}
	c := hi<<4 | lo
	return c, c <= ' ' || c >= 0x7f && c < 0xa0 || c == 0xc2 || strings.IndexByte(";#[%", c) >= 0
}

func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
