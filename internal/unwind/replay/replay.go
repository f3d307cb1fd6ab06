// Package replay walks recorded process images with the BPF unwinder's own C, compiled for the host: what the kernel would have done, where it can be looked at, repeated, and made to fail.
//
//	Image (image.go)   registers, memory, mappings, rows of the files
//	   -> replay.c, which includes unwind.h with arrays for maps (Build)
//	   -> Machine.Walk: frames, photographs of languages' functions, how it
//	      ended, how many reads it took
//
// Reads can be made to fail one by one (Machine.WalkFailing): a walk of native
// code must then end there, with the frames it has.
package replay

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"path/filepath"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

//go:embed replay.c
var source []byte

// Build compiles the walker into dir and gives its path. include is the
// directory of unwind.h; flags are more for the compiler.
func Build(dir, include string, flags ...string) (string, error) {
	out := filepath.Join(dir, "replay")
	args := append([]string{"-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-parameter", "-I" + include}, flags...)
	cmd := exec.Command("cc", append(args, "-x", "c", "-", "-o", out)...)
	cmd.Stdin = bytes.NewReader(source)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the walker (it needs gcc and libbpf-dev): %w\n%s", err, output)
	}
	return out, nil
}

// Machine is a walker at work, with one image loaded.
type Machine struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors bytes.Buffer
	image  *Image
}

// Walk is what became of one walk.
type Walk struct {
	End         profile.End
	Frames      []unwind.Frame
	Reads       int          // of user memory
	Failed      []Failure    // the first of those that failed
	Photographs []Photograph // of the functions that it met
}

// Failure is a read of user memory that failed.
type Failure struct{ From, Size uint64 }

// Photograph is one of a function; its process has no number.
type Photograph struct {
	Language unwind.Language
	lang.Photograph
}

// Start runs the walker that Build made.
func Start(path string) (*Machine, error) {
	m := &Machine{cmd: exec.Command(path)}
	m.cmd.Stderr = &m.errors
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start replay: %w", err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start replay: %w", err)
	}
	m.in, m.out = in, bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start replay: %w", err)
	}
	return m, nil
}

// Close ends the walker. An error says that it crashed, or refused its input.
func (m *Machine) Close() error {
	err := errors.Join(m.in.Close(), m.cmd.Wait())
	if err != nil {
		return fmt.Errorf("replay: %w: %s", err, m.errors.Bytes())
	}
	return nil
}

// Load gives the walker an image to walk.
func (m *Machine) Load(image *Image) error {
	m.image = image
	if _, err := m.in.Write(image.message()); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	return nil
}

// Add gives the walker more memory of the image it has.
func (m *Machine) Add(p Piece) error {
	if _, err := m.in.Write(p.append([]byte{'M'})); err != nil {
		return fmt.Errorf("add memory: %w", err)
	}
	return nil
}

// Walk walks the image.
func (m *Machine) Walk() (Walk, error) { return m.WalkFailing(math.MaxUint32) }

// WalkFailing walks the image; the nth read of memory fails, counted from 0.
func (m *Machine) WalkFailing(nth int) (w Walk, err error) {
	message := append([]byte(nil), 'W')
	for _, r := range m.image.Registers {
		message = binary.LittleEndian.AppendUint64(message, r)
	}
	message = binary.LittleEndian.AppendUint64(message, m.image.ThreadPointer)
	message = binary.LittleEndian.AppendUint32(message, uint32(nth))
	if _, err := m.in.Write(message); err != nil {
		return w, fmt.Errorf("ask for a walk: %w", err)
	}
	return m.result()
}

// Where things are in struct photograph of photographs.h.
const (
	photographKind    = 4
	photographWhat    = 8
	photographValues  = 16
	photographLengths = photographValues + 8*8
	photographBytes   = photographLengths + 4*4
	photographSize    = photographBytes + 2048
)

func readPhotograph(raw []byte) Photograph {
	le := binary.LittleEndian
	p := Photograph{Language: unwind.Language(le.Uint32(raw[photographKind:]))}
	p.What, p.Bytes = le.Uint64(raw[photographWhat:]), raw[photographBytes:]
	for i := range p.Values {
		p.Values[i] = le.Uint64(raw[photographValues+8*i:])
	}
	for i := range p.Lengths {
		p.Lengths[i] = le.Uint32(raw[photographLengths+4*i:])
	}
	return p
}

// result reads what replay.c says of a walk.
func (m *Machine) result() (w Walk, err error) {
	var head struct{ End, Words, Reads, Failed, Photographs uint32 }
	read := func(into any) {
		if err == nil {
			err = binary.Read(m.out, binary.LittleEndian, into)
		}
	}
	read(&head)
	w = Walk{End: profile.End(head.End), Reads: int(head.Reads), Failed: make([]Failure, head.Failed)}
	words, photographs := make([]uint64, head.Words), make([]byte, int(head.Photographs)*photographSize)
	read(w.Failed)
	read(words)
	read(photographs)
	if err != nil {
		return w, fmt.Errorf("read a walk: %w", err)
	}
	for len(words) > 0 {
		f, taken := unwind.DecodeFrames(words)
		w.Frames = append(w.Frames, f)
		words = words[taken:]
	}
	for ; len(photographs) > 0; photographs = photographs[photographSize:] {
		w.Photographs = append(w.Photographs, readPhotograph(photographs[:photographSize:photographSize]))
	}
	return w, nil
}
