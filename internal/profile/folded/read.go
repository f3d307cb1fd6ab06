package folded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"atys.dev/atys/internal/profile"
)

// Bounds on what one line may make us allocate: deeper stacks come from no
// profiler, and trees are walked recursively.
const (
	maxLine   = 16 << 20
	maxFrames = 1 << 16
)

// Read reads folded stacks. Counts become the value type samples/count; blank
// lines and lines that start with # are skipped.
func Read(r io.Reader) (*profile.Window, error) {
	p := parser{
		names: map[string]profile.LocationID{},
		b: profile.NewBuilder(profile.Head{
			Types: []profile.ValueType{{Kind: "samples", Unit: "count", Period: 1}},
		}),
	}
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	number := 0
	for in.Scan() {
		number++
		if err := p.line(in.Bytes()); err != nil {
			return nil, fmt.Errorf("read folded: line %d: %w", number, err)
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read folded: line %d: longer than %d MB", number+1, maxLine>>20)
	} else if err != nil {
		return nil, fmt.Errorf("read folded: %w", err)
	}
	if p.lines == 0 {
		return nil, errors.New("read folded: no stacks in it")
	}
	if p.rounded > 0 {
		h := p.b.Head()
		h.Comments = append(h.Comments, fmt.Sprintf("folded: %d counts were not whole and have been rounded", p.rounded))
	}
	return p.b.Window(), nil
}

type parser struct {
	b       *profile.Builder
	names   map[string]profile.LocationID // by the frame as written
	stack   []profile.LocationID
	value   [1]int64
	lines   int
	rounded int
}

func (p *parser) line(line []byte) error {
	line = bytes.TrimRight(line, " \t\r\n")
	if len(line) == 0 || line[0] == '#' {
		return nil
	}
	space := bytes.LastIndexAny(line, " \t")
	if space < 0 {
		return fmt.Errorf("no count at the end of %s", profile.Excerpt(line))
	}
	count, err := p.count(line[space+1:])
	if err != nil {
		return err
	}
	frames := bytes.TrimRight(line[:space], " \t")
	if n := bytes.Count(frames, []byte{';'}); n >= maxFrames {
		return fmt.Errorf("%d frames: more than %d", n+1, maxFrames)
	}
	p.lines++
	end := p.frames(frames)
	p.value[0] = count
	p.b.Add(profile.Row{Stack: p.b.Stack(p.stack, end), N: count, Values: p.value[:]})
	return nil
}

// count reads a count; ones with a fraction (weights of other tools) are rounded.
func (p *parser) count(field []byte) (int64, error) {
	n, err := strconv.ParseInt(string(field), 10, 64)
	if err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(field), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<63 {
		return 0, fmt.Errorf("%s is not a count", profile.Excerpt(field))
	}
	if f != math.Trunc(f) {
		p.rounded++
	}
	return int64(math.Round(f)), nil
}

// frames sets p.stack, leaf first, and tells how the walk ended where a first
// frame as Write makes it says so.
func (p *parser) frames(line []byte) profile.End {
	end := profile.EndUnknown
	p.stack = p.stack[:0]
	if string(line) == noFrames {
		return end
	}
	if root, rest, _ := bytes.Cut(line, []byte{';'}); len(root) > 2 && root[0] == '[' && root[len(root)-1] == ']' {
		if e, ok := profile.LookupEnd(string(root[1 : len(root)-1])); ok && e.Truncated() {
			if line, end = rest, e; len(rest) == 0 {
				return end
			}
		}
	}
	for len(line) > 0 {
		i := bytes.LastIndexByte(line, ';')
		p.stack = append(p.stack, p.frame(line[i+1:]))
		line = line[:max(i, 0)]
		if i == 0 {
			p.stack = append(p.stack, p.frame(nil))
		}
	}
	return end
}

func (p *parser) frame(written []byte) profile.LocationID {
	id, ok := p.names[string(written)]
	if !ok {
		id = p.b.Named(parseFrame(string(written)))
		p.names[string(written)] = id
	}
	return id
}

func parseFrame(written string) profile.Frame {
	f := profile.Frame{Function: written}
	if hasMark(written) {
		f.Function = written[:len(written)-len(markKernel)]
		switch written[len(f.Function):] {
		case markKernel:
			f.Kind = profile.KindKernel
		case markInlined:
			f.Inlined = true
		case markJIT:
			f.Kind = profile.KindJIT
		case markInterpreted:
			f.Kind = profile.KindJavaInterpreted
		case markC1:
			f.Kind = profile.KindJavaCompiled
		}
	}
	f.Function = unescapeAll(f.Function)
	if f.Function == "" {
		f.Function = noName
	}
	return f
}

func unescapeAll(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		c, ok := unescape(s[i:])
		if !ok {
			if out != nil {
				out = append(out, s[i])
			}
			continue
		}
		if out == nil {
			out = append(make([]byte, 0, len(s)), s[:i]...)
		}
		out = append(out, c)
		i += 2
	}
	if out == nil {
		return s
	}
	return string(out)
}
