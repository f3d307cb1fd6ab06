// Package replay walks recorded process images with the BPF unwinder's own C, compiled for the host: what the kernel would have done, where it can be looked at, repeated, and made to fail.
//
//	Image (image.go)   registers, memory, mappings, rows of the files
//	   -> replay.c, which includes unwind.h with arrays for maps (Build)
//	   -> Machine.Walk: frames, how it ended, how many reads it took
//
// Reads can be made to fail one by one (Machine.WalkFailing): a walk must then
// end there, with the frames it has.
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

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

//go:embed replay.c
var source []byte

// Build compiles the walker into dir and gives its path. include is the
// directory of unwind.h; flags are more for the compiler.
func Build(dir, include string, flags ...string) (string, error) {
	out := filepath.Join(dir, "replay")
	args := append([]string{"-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-I" + include}, flags...)
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
	End    profile.End
	Frames []unwind.Frame
	Reads  int    // of user memory
	Failed uint64 // address of the first read that failed; 0: none did
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

// Walk walks the image.
func (m *Machine) Walk() (Walk, error) { return m.WalkFailing(math.MaxUint32) }

// WalkFailing walks the image; the nth read of memory fails, counted from 0.
func (m *Machine) WalkFailing(nth int) (w Walk, err error) {
	message := append([]byte(nil), 'W')
	for _, r := range m.image.Registers {
		message = binary.LittleEndian.AppendUint64(message, r)
	}
	message = binary.LittleEndian.AppendUint32(message, uint32(nth))
	if _, err := m.in.Write(message); err != nil {
		return w, fmt.Errorf("ask for a walk: %w", err)
	}
	var head struct {
		End, Count, Reads, Unused uint32
		Failed                    uint64
	}
	if err := binary.Read(m.out, binary.LittleEndian, &head); err != nil {
		return w, fmt.Errorf("read a walk: %w", err)
	}
	words := make([]uint64, head.Count)
	if err := binary.Read(m.out, binary.LittleEndian, words); err != nil {
		return w, fmt.Errorf("read a walk: %w", err)
	}
	w = Walk{End: profile.End(head.End), Reads: int(head.Reads), Failed: head.Failed}
	for _, word := range words {
		w.Frames = append(w.Frames, unwind.DecodeFrame(word))
	}
	return w, nil
}
