package kernels

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// OutputLimit is how much of each stream of a command is kept. It keeps a
// command gone wild from filling the host's disk through the serial line.
const OutputLimit = 16 * mebibyte

const (
	recordMark = "@atys "
	chunk      = 3 << 10 // raw bytes in one record; 4 KiB as base64
	maxRecord  = 8 << 10
)

// Recorder writes records, one line each:
//
//	@atys out COMMAND STREAM BASE64       a piece of output; stream 1 or 2
//	@atys end COMMAND EXIT NANOSECONDS BYTES1 BYTES2 DROPPED "STATUS"
//	@atys done                            nothing follows
//
// COMMAND counts from 0. BYTES are the sums of the command's pieces, so that
// a lost line is noticed. Lines without the mark are no records. Output and
// End may be called from several goroutines.
type Recorder struct {
	mu  sync.Mutex // guards all below, and keeps lines whole
	w   io.Writer
	err error
	sum map[int]*counts
}

type counts struct {
	kept    [2]int64
	dropped int64
}

// NewRecorder writes to w, one Write per record.
func NewRecorder(w io.Writer) *Recorder {
	return &Recorder{w: w, sum: map[int]*counts{}}
}

// Output returns the writer for a stream (1 or 2) of a command. It never
// fails and never stops a command: Done reports what went wrong.
func (r *Recorder) Output(command, stream int) io.Writer {
	return recorderStream{r, command, stream}
}

type recorderStream struct {
	r               *Recorder
	command, stream int
}

func (s recorderStream) Write(p []byte) (int, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts(s.command)
	keep := min(int64(len(p)), OutputLimit-c.kept[s.stream-1])
	c.kept[s.stream-1] += keep
	c.dropped += int64(len(p)) - keep
	for rest := p[:keep]; len(rest) > 0; {
		n := min(len(rest), chunk)
		r.line("out %d %d %s", s.command, s.stream, base64.StdEncoding.EncodeToString(rest[:n]))
		rest = rest[n:]
	}
	return len(p), nil
}

// End says how a command ended; its output must be complete.
func (r *Recorder) End(command, exit int, took time.Duration, status string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts(command)
	if len(status) > 1024 {
		status = status[:1024]
	}
	r.line("end %d %d %d %d %d %d %q", command, exit, took.Nanoseconds(),
		c.kept[0], c.kept[1], c.dropped, status)
	delete(r.sum, command)
}

// Done closes the stream of records and returns the first write error.
func (r *Recorder) Done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line("done")
	return r.err
}

func (r *Recorder) counts(command int) *counts {
	c := r.sum[command]
	if c == nil {
		c = &counts{}
		r.sum[command] = c
	}
	return c
}

func (r *Recorder) line(format string, args ...any) {
	text := fmt.Appendf([]byte(recordMark), format, args...)
	if _, err := r.w.Write(append(text, '\n')); err != nil && r.err == nil {
		r.err = err
	}
}

// Unfinished is the Status of a command whose end was not recorded.
const Unfinished = "unfinished"

// ErrNotDone says that records stop before their end: the machine died.
var ErrNotDone = errors.New("the machine stopped before its last command ended")

// ParseRecords reads records and returns one Result for each command, with
// what arrived of it. It returns ErrNotDone when records stop early, and an
// error that names the line when one is damaged.
func ParseRecords(r io.Reader, commands []string) ([]Result, error) {
	p := recordParser{results: make([]Result, len(commands)), ended: make([]bool, len(commands))}
	for i, c := range commands {
		p.results[i] = Result{Command: c, Exit: -1, Status: Unfinished}
	}
	err := p.parse(r)
	if err == nil && slices.Contains(p.ended, false) {
		err = ErrNotDone
	}
	return p.results, err
}

type recordParser struct {
	results []Result
	ended   []bool
}

func (p *recordParser) parse(r io.Reader) error {
	in := bufio.NewReaderSize(r, maxRecord)
	noise := false // inside a line too long for a record
	number := 0
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) && (noise || !bytes.HasPrefix(line, []byte(recordMark))) {
			noise = true
			continue
		}
		number++
		if noise && err == nil {
			noise = false
			continue
		}
		if err == io.EOF {
			return ErrNotDone // also with half a line
		}
		if err != nil {
			return fmt.Errorf("record line %d: %w", number, err)
		}
		text, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), recordMark)
		if !ok {
			continue
		}
		if text == "done" {
			return nil
		}
		if err := p.record(text); err != nil {
			return fmt.Errorf("record line %d: %w", number, err)
		}
	}
}

func (p *recordParser) record(text string) error {
	kind, rest, _ := strings.Cut(text, " ")
	number, rest, _ := strings.Cut(rest, " ")
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(p.results) {
		return fmt.Errorf("no command has the number %q", number)
	}
	if p.ended[i] {
		return fmt.Errorf("command %d goes on after its end", i)
	}
	switch kind {
	case "out":
		return p.results[i].output(rest)
	case "end":
		err := p.results[i].end(rest)
		p.ended[i] = err == nil
		return err
	}
	return fmt.Errorf("unknown kind %q", kind)
}

func (r *Result) output(rest string) error {
	stream, text, _ := strings.Cut(rest, " ")
	to := &r.Stdout
	switch stream {
	case "1":
	case "2":
		to = &r.Stderr
	default:
		return fmt.Errorf("unknown stream %q", stream)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return fmt.Errorf("damaged output: %w", err)
	}
	if len(*to)+len(data) > OutputLimit {
		return fmt.Errorf("more than %d bytes in stream %s", OutputLimit, stream)
	}
	*to = append(*to, data...)
	return nil
}

func (r *Result) end(rest string) error {
	fields := strings.SplitN(rest, " ", 6)
	if len(fields) != 6 {
		return fmt.Errorf("end with %d fields, want 6", len(fields))
	}
	var n [5]int64
	for i := range n {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return fmt.Errorf("end: %w", err)
		}
		n[i] = v
	}
	status, err := strconv.Unquote(fields[5])
	if err != nil {
		return fmt.Errorf("end: status %q: %w", fields[5], err)
	}
	if n[2] != int64(len(r.Stdout)) || n[3] != int64(len(r.Stderr)) {
		return fmt.Errorf("output was lost on the way: %d and %d bytes arrived of %d and %d",
			len(r.Stdout), len(r.Stderr), n[2], n[3])
	}
	if n[0] < -1 || n[0] > 255 || n[1] < 0 || n[4] < 0 {
		return fmt.Errorf("end: numbers out of range in %q", rest)
	}
	r.Exit, r.Duration, r.Dropped, r.Status = int(n[0]), time.Duration(n[1]), n[4], status
	return nil
}
