package oracle

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"atys.dev/atys/internal/proc"
)

//go:embed walk.c
var walkSource []byte

// BuildWalker compiles the walker into dir and gives its path. It needs a C
// compiler and the headers of libdw.
func BuildWalker(dir string) (string, error) {
	out := filepath.Join(dir, "walk")
	cmd := exec.Command("cc", "-O2", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-o", out, "-ldw", "-lelf")
	cmd.Stdin = bytes.NewReader(walkSource)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the walker (it needs gcc and libdw-dev): %w\n%s", err, output)
	}
	return out, nil
}

// walker is walk.c at work.
type walker struct {
	cmd  *exec.Cmd
	in   *bufio.Writer
	pipe io.Closer
	out  *bufio.Reader
	vdso *os.File
}

// said is what the walker made of one record.
type said struct {
	end    string // "complete", or why not
	frames []witness
}

// witness is one frame as the walker sees it.
type witness struct {
	pc      uint64
	exact   bool // pc is no return address
	guessed bool // no unwind information covers it: what follows is a guess
	name    string
}

func startWalker(path string) (*walker, error) {
	w := &walker{cmd: exec.Command(path)}
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start walker: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start walker: %w", err)
	}
	w.in, w.pipe, w.out = bufio.NewWriterSize(in, 1<<17), in, bufio.NewReaderSize(out, 1<<16)
	image, _, err := proc.FS{}.VDSO(os.Getpid())
	if err != nil {
		return nil, err
	}
	if w.vdso, err = os.CreateTemp("", "vdso-*.so"); err != nil {
		return nil, fmt.Errorf("keep the vdso: %w", err)
	}
	if _, err := w.vdso.Write(image); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the vdso: %w", err), w.removeVDSO())
	}
	if err := w.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start walker: %w", err), w.removeVDSO())
	}
	return w, nil
}

func (w *walker) removeVDSO() error { return errors.Join(w.vdso.Close(), os.Remove(w.vdso.Name())) }

func (w *walker) close() error {
	return errors.Join(w.pipe.Close(), w.cmd.Wait(), w.removeVDSO())
}

// walk has one record walked.
func (w *walker) walk(r *record) (said, error) {
	if !r.space.sent {
		w.send(r.space)
	}
	message := append([]byte(nil), 'S')
	message = le.AppendUint32(message, r.space.id)
	for _, v := range r.registers {
		message = le.AppendUint64(message, v)
	}
	message = le.AppendUint32(message, uint32(len(r.stack)))
	w.in.Write(message)
	w.in.Write(r.stack)
	if err := w.in.Flush(); err != nil {
		return said{}, fmt.Errorf("ask walker: %w", err)
	}
	line, err := w.out.ReadString('\n')
	if err != nil {
		return said{}, fmt.Errorf("read walker's answer: %w", err)
	}
	return parseAnswer(line)
}

// send describes a space to the walker. Errors show at the next flush.
func (w *walker) send(s *space) {
	modules := s.modules(w.vdso.Name())
	message := append([]byte(nil), 'M')
	message = le.AppendUint32(message, s.id)
	message = le.AppendUint32(message, uint32(len(modules)))
	for _, m := range modules {
		message = le.AppendUint64(message, m.bias)
		message = le.AppendUint32(message, uint32(len(m.path)))
		message = append(message, m.path...)
	}
	w.in.Write(message)
	s.sent = true
}

func parseAnswer(line string) (said, error) {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	s := said{end: fields[0]}
	for _, field := range fields[1:] {
		pc, rest, _ := strings.Cut(field, " ")
		flags, name, _ := strings.Cut(rest, " ")
		address, err := strconv.ParseUint(pc, 16, 64)
		if err != nil {
			return s, fmt.Errorf("walker's answer %q: %w", line, err)
		}
		s.frames = append(s.frames, witness{address, strings.Contains(flags, "a"), strings.Contains(flags, "n"), name})
	}
	return s, nil
}
