package external

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"atys.dev/atys/internal/profile"
)

// Bounds on what a line may make us allocate.
const (
	maxLine   = 16 << 20
	maxFrames = 1 << 16
)

// textOptions say how the text of a tool becomes rows.
type textOptions struct {
	period  int64 // ns that a sample stands for
	threads bool  // keep threads apart
	process int   // whose they are, where the text does not tell; 0: it does
	// threadID turns a thread's number inside a process's PID namespace into
	// ours; nil leaves it.
	threadID func(pid, tid int) int
}

// eachLine hands over the stack and count of each line of a folded text.
func eachLine(r io.Reader, take func(stack string, count int64) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	number := 0
	for in.Scan() {
		number++
		line := bytes.TrimRight(in.Bytes(), " \t\r")
		if len(line) == 0 {
			continue
		}
		space := bytes.LastIndexByte(line, ' ')
		if space < 1 {
			return fmt.Errorf("line %d: no count in %s", number, profile.Excerpt(line))
		}
		count, err := strconv.ParseInt(string(line[space+1:]), 10, 64)
		if err != nil || count < 0 || count > maxCount {
			return fmt.Errorf("line %d: %s is not a count", number, profile.Excerpt(line[space+1:]))
		}
		if n := bytes.Count(line, []byte{';'}); n >= maxFrames {
			return fmt.Errorf("line %d: more than %d frames", number, maxFrames)
		}
		if err := take(string(line[:space]), count); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d MB", number+1, maxLine>>20)
	}
	return in.Err()
}

// maxCount keeps count times period within range: no tool takes a billion
// samples on one stack.
const maxCount = 1 << 30

// readPySpy reads what `py-spy record -f raw --full-filenames -s -t` writes:
//
//	process 7:"python3 a.py";thread (9): worker;run (/usr/lib/python3/threading.py:982);leaf (/srv/a.py:4) 85
//
// root first. Nothing in it is escaped: a name may hold a semicolon, so that
// what begins a process or a thread, and what ends a frame, decides.
func readPySpy(r io.Reader, o textOptions) (*profile.Window, error) {
	b := profile.NewBuilder(profile.Head{Types: cpuTypes(o.period)})
	err := eachLine(r, func(line string, count int64) error {
		t, frames := cutPySpyThread(line)
		if t.PID == 0 {
			t.PID = o.process
		}
		ids := make([]profile.LocationID, 0, strings.Count(frames, ";")+1)
		for frames != "" {
			var frame string
			frame, frames = cutPySpyFrame(frames)
			ids = append(ids, b.Named(pySpyFrame(frame)))
		}
		addRow(b, o, t, ids, profile.EndComplete, count)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.Window(), nil
}

// addRow adds one line's samples; locations come root first.
func addRow(b *profile.Builder, o textOptions, t profile.Thread, ids []profile.LocationID, end profile.End, count int64) {
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	if o.threadID != nil && t.TID != 0 {
		t.TID = o.threadID(t.PID, t.TID)
	}
	if !o.threads {
		t.TID, t.Name = t.PID, t.Process
	}
	row := profile.Row{Stack: b.Stack(ids, end), N: count, Values: []int64{count * o.period},
		Squares: []float64{float64(count) * float64(o.period) * float64(o.period)}}
	if t != (profile.Thread{}) {
		row.Thread = b.Thread(t)
	}
	b.Add(row)
}

var (
	pySpyProcess = regexp.MustCompile(`^process (\d+):"`)
	pySpyNext    = regexp.MustCompile(`";(?:process \d+:"|thread \()`)
	pySpyThread  = regexp.MustCompile(`^thread \((\d+|0x[0-9a-fA-F]+)\)(?:: )?`)
	// A frame, or the beginning of one whose file's name has a semicolon. A
	// thread's name may look like a frame without a line: "worker; one (a)".
	pySpyFrameStart = regexp.MustCompile(`^[^ ;][^;]* \((?:[^;]*:\d+\)|[^;]*[^;)])$`)
)

// cutPySpyThread cuts the processes, of which the last one counts, and the
// thread off the root of a stack.
func cutPySpyThread(line string) (t profile.Thread, frames string) {
	for {
		m := pySpyProcess.FindStringSubmatch(line)
		if m == nil {
			break
		}
		end := pySpyNext.FindStringIndex(line[len(m[0]):])
		if end == nil {
			return t, line
		}
		t.PID = number(m[1])
		command := line[len(m[0]):][:end[0]]
		t.Process = processName(command)
		line = line[len(m[0]):][end[0]+len(`";`):]
	}
	m := pySpyThread.FindStringSubmatch(line)
	if m == nil {
		return t, line
	}
	t.TID = number(m[1]) // 0 where it is an address
	line = line[len(m[0]):]
	// The name goes on until what follows is a frame.
	for at := 0; ; {
		i := strings.IndexByte(line[at:], ';')
		if i < 0 {
			break
		}
		at += i + 1
		if next, _, _ := strings.Cut(line[at:], ";"); pySpyFrameStart.MatchString(next) {
			t.Name = line[:at-1]
			return t, line[at:]
		}
	}
	t.Name, frames, _ = strings.Cut(line, ";")
	return t, frames
}

// processName is the program of a command line, without its path.
func processName(command string) string {
	program, _, _ := strings.Cut(command, " ")
	return filepath.Base("/" + program)
}

// number parses a process or thread; 0 where it is none.
func number(text string) int {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// cutPySpyFrame cuts the outermost frame off. A file's name may hold a
// semicolon: a frame ends where its bracket does.
func cutPySpyFrame(frames string) (frame, rest string) {
	for at := 0; ; {
		i := strings.IndexByte(frames[at:], ';')
		if i < 0 {
			return frames, ""
		}
		at += i
		if strings.HasSuffix(frames[:at], ")") {
			return frames[:at], frames[at+1:]
		}
		at++
	}
}

// pySpyFrame parses "name (file:line)"; file and line may be missing.
func pySpyFrame(text string) profile.Frame {
	f := profile.Frame{Function: text, Kind: profile.KindPython}
	name, place, ok := strings.Cut(text, " (")
	if !ok || !strings.HasSuffix(place, ")") || name == "" {
		return f
	}
	f.Function, f.File = name, strings.TrimSuffix(place, ")")
	if i := strings.LastIndexByte(f.File, ':'); i >= 0 {
		if line, err := strconv.ParseUint(f.File[i+1:], 10, 31); err == nil {
			f.File, f.Line = f.File[:i], int(line)
		}
	}
	return f
}
