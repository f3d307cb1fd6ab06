package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/lang/hotspot"
	"atys.dev/atys/internal/lang/perl"
	"atys.dev/atys/internal/lang/php"
	"atys.dev/atys/internal/lang/python"
	"atys.dev/atys/internal/lang/ruby"
	"atys.dev/atys/internal/lang/v8"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// readers read the runtimes of which there are images.
var readers = []struct {
	language unwind.Language
	holds    func(*binfile.File) bool
	read     func(lang.Mapped) (lang.Walked, error)
}{
	{unwind.Python, python.Holds, python.Read},
	{unwind.Java, hotspot.Holds, hotspot.Read},
	{unwind.V8, v8.Holds, v8.Read},
	{unwind.Ruby, ruby.Holds, ruby.Read},
	{unwind.PHP, php.Holds, php.Read},
	{unwind.Perl, perl.Holds, perl.Read},
}

// runtimeRead is a runtime of a process, for its image and to name frames by.
type runtimeRead struct {
	image  Runtime
	walked lang.Walked
}

// readRuntimes reads the runtimes that a file holds in a process.
func readRuntimes(t *testing.T, pid int, f *binfile.File, m proc.Mapping) (found []runtimeRead) {
	t.Helper()
	for _, r := range readers {
		if !r.holds(f) {
			continue
		}
		address, ok := f.Address(m.Offset)
		if !ok {
			t.Fatalf("%s is mapped where it has nothing", m.Path)
		}
		walked, err := r.read(lang.Mapped{PID: pid, Path: m.Path, Bias: m.Start - address, Open: func() (*os.File, error) { return os.Open(m.Path) }})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, walked.Parameters()); err != nil {
			t.Fatal(err)
		}
		found = append(found, runtimeRead{Runtime{r.language, b.Bytes()}, walked})
	}
	return found
}

// album names functions by photographs: what a walk copies must be enough for
// the languages whose names do not come from the process.
type album map[unwind.Language]lang.Namer

// develop gives the names of a walk's functions.
func develop(w Walk) album {
	a := album{unwind.Python: &python.Album{}, unwind.PHP: &php.Album{}, unwind.Ruby: &ruby.Album{}, unwind.Perl: &perl.Album{}, unwind.V8: &v8.Namer{}}
	for _, p := range w.Photographs {
		if p.Language == unwind.Python { // older ones name the process recorded, whose source tells the class of a method
			p.Values[1] &^= 0xffffff << 32
		}
		switch of := a[p.Language].(type) {
		case interface{ Add(lang.Photograph) }:
			of.Add(p.Photograph)
		case *v8.Namer:
			of.Look(p.Photograph, nil)
		}
	}
	return a
}

// name tells what a frame of a language shows; "": nothing is known of it.
func (a album) name(f unwind.Frame) string {
	namer := a[f.Language]
	if namer == nil {
		return ""
	}
	return shown(namer.Name(lang.Activation{What: f.Offset, Where: f.Where}, nil))
}

// shown writes frames as golden files have them.
func shown(frames []profile.Frame) string {
	var names []string
	for _, f := range frames {
		name := f.Function
		if f.Line > 0 {
			name += fmt.Sprintf(" (%s:%d)", filepath.Base(f.File), f.Line)
		}
		names = append(names, name)
	}
	return strings.Join(names, " in ")
}

// name keeps what frames are called that only the process can tell.
func (r *recording) name(w Walk) {
	r.image.Names = map[string]string{}
	for _, f := range w.Frames {
		if f.Language != unwind.Java {
			continue
		}
		for _, one := range r.of.runtimes {
			if one.image.Language == f.Language {
				names := (&hotspot.Namer{}).Name(lang.Activation{PID: r.of.pid, What: f.Offset, Where: f.Where}, one.walked)
				r.image.Names[key(f)] = shown(names)
			}
		}
	}
}

// key tells a frame of a language from others of the same image.
func key(f unwind.Frame) string { return fmt.Sprintf("%x:%x", f.Offset, f.Where) }
