// Package format reads and writes profile files of every format: it finds the right one by content or by extension.
//
//	Read       path -> uncompress -> recognise (detect.go) -> the format's reader
//	WriteFile  extension -> the format's writer -> a new file that takes the old one's place (file.go)
package format

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/cpuprofile"
	"atys.dev/atys/internal/profile/folded"
	"atys.dev/atys/internal/profile/perfscript"
	"atys.dev/atys/internal/profile/pprof"
	"atys.dev/atys/internal/profile/speedscope"
)

// Format is one of the file formats, by the name users know it by.
type Format string

const (
	PProf      Format = "pprof"
	Folded     Format = "folded"
	PerfScript Format = "perf script" // read only
	Speedscope Format = "speedscope"  // write only
	CPUProfile Format = "cpuprofile"  // write only
)

// extensions tell a format by a file's name; the first of a format is its usual one.
var extensions = [...]struct {
	suffix string
	format Format
}{
	{".pb.gz", PProf},
	{".pprof", PProf},
	{".folded", Folded},
	{".collapsed", Folded},
	{".speedscope.json", Speedscope},
	{".cpuprofile", CPUProfile},
	{".txt", PerfScript},
}

// UnknownExtensionError says that no format goes by a file's name.
type UnknownExtensionError struct{ Name string }

func (e *UnknownExtensionError) Error() string {
	known := make([]string, 0, len(extensions))
	for _, x := range extensions {
		known = append(known, x.suffix)
	}
	return fmt.Sprintf("no format goes by the extension of %q; known are %s", e.Name, strings.Join(known, " "))
}

// ByExtension finds the format that a file's name asks for.
func ByExtension(name string) (Format, error) {
	lower := strings.ToLower(name)
	for _, x := range extensions {
		if strings.HasSuffix(lower, x.suffix) {
			return x.format, nil
		}
	}
	return "", &UnknownExtensionError{Name: name}
}

// Extensions lists the extensions of formats that can be written.
func Extensions() []string {
	var out []string
	for _, x := range extensions {
		if x.format != PerfScript {
			out = append(out, x.suffix)
		}
	}
	return out
}

// Options say what a file is to hold where its format leaves a choice.
type Options struct {
	Type    string // kind of the value, for formats that hold only one; "" is the usual one
	Process bool   // lead stacks with their process, where the format has no place for it
	Thread  bool   // the same for threads
	Title   string // where a format shows one
}

// Write writes a window in a format.
func Write(w io.Writer, f Format, win *profile.Window, o Options) error {
	switch f {
	case PProf:
		return pprof.Write(w, win)
	case Folded:
		return folded.Write(w, win, folded.Options{Type: o.Type, Process: o.Process, Thread: o.Thread})
	case Speedscope:
		return speedscope.Write(w, win, speedscope.Options{Name: o.Title, Thread: o.Thread})
	case CPUProfile:
		return cpuprofile.Write(w, win, cpuprofile.Options{Type: o.Type, Process: o.Process, Thread: o.Thread})
	case PerfScript:
		return fmt.Errorf("%s files can be read, not written; use one of %s", f, strings.Join(Extensions(), " "))
	}
	return fmt.Errorf("no format %q", f)
}

// WriteFile writes a window to a file, in a format that can be written, or not at all: see Replace.
func WriteFile(path string, f Format, win *profile.Window, o Options) error {
	if f == PerfScript {
		return Write(io.Discard, f, win, o) // refuse before there is a file
	}
	return Replace(path, func(w io.Writer) error { return Write(w, f, win, o) })
}

// Read reads a profile from a file of any format, gzipped or not. The content
// decides, not the name.
func Read(path string) (*profile.Window, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, cause(err))
	}
	defer f.Close()
	w, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, cause(err))
	}
	return w, nil
}

func decode(f Format, in io.Reader) (*profile.Window, error) {
	switch f {
	case PProf:
		return pprof.Read(in)
	case PerfScript:
		return perfscript.Read(in)
	}
	return folded.Read(in)
}

// checkSums refuses a profile whose values do not add up to a number that can
// be held: every share would be wrong.
func checkSums(w *profile.Window) error {
	for i, t := range w.Types {
		var sum float64
		for _, r := range w.Rows.All() {
			sum += math.Abs(float64(r.Values[i]))
		}
		if sum >= math.MaxInt64 {
			return fmt.Errorf("its values of %q add up to %.3g: at most %.3g can be counted", t.Kind, sum, float64(math.MaxInt64))
		}
	}
	return nil
}

// maxText bounds what a compressed text may grow to; 1 GB of folded stacks is
// days of a large machine.
const maxText = 1 << 30

// Decode reads a profile of any format, gzipped or not.
func Decode(r io.Reader) (*profile.Window, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(in.Size())
	if err != nil && err != io.EOF {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		zip, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("uncompress: %w", err)
		}
		in = bufio.NewReaderSize(&bounded{r: zip, left: maxText}, 64<<10)
		if head, err = in.Peek(in.Size()); err != nil && err != io.EOF {
			return nil, fmt.Errorf("uncompress: %w", err)
		}
	}
	f, err := detect(head)
	if err != nil {
		return nil, err
	}
	w, err := decode(f, in)
	if err != nil {
		return nil, err
	}
	return w, checkSums(w)
}

// bounded ends a stream that is longer than it may be with an error.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errors.New("larger than 1 GB uncompressed")
	}
	return n, err
}
