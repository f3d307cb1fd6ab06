// Package profile is the model that everything else shares: what one sampler saw of one target in one interval.
//
// The flow, bottom up:
//
//	Location   a place in code, independent of where it was loaded
//	Frame      what a developer calls that place (several if calls were inlined)
//	Stack      locations, leaf first, and how the walk ended
//	Row        a stack (with its thread, context, slot) and what was sampled on it
//	Window     rows, the dictionaries they point into, exact times, losses
//	Tree       windows merged into a prefix tree, one column per window
//
// File formats live in packages below this one; this package imports the
// standard library only.
package profile

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Kind is what executes a frame.
type Kind uint8

const (
	KindUnknown Kind = iota
	KindNative
	KindKernel
	KindPython
	KindJavaCompiled
	KindJavaInterpreted
	KindV8
	KindRuby
	KindPHP
	KindPerl
	KindDotNet
	KindBEAM
	KindJIT
)

var kindNames = [...]string{"unknown", "native", "kernel", "python", "java-jit", "java-interpreted",
	"v8", "ruby", "php", "perl", "dotnet", "beam", "jit"}

// String returns the kind's name in files and on pages.
func (k Kind) String() string {
	return nameOf(kindNames[:], k)
}

// ParseKind is the inverse of String. An unknown name is KindUnknown.
func ParseKind(name string) Kind {
	return parseName[Kind](kindNames[:], name)
}

// nameOf returns the name of a value; see other.
func nameOf[T ~uint8](names []string, value T) string {
	if int(value) < len(names) {
		return names[value]
	}
	return other(uint8(value))
}

// parseName is the inverse of nameOf. An unknown name is zero.
func parseName[T ~uint8](names []string, name string) T {
	if i := slices.Index(names, name); i >= 0 {
		return T(i)
	}
	number, _ := otherNumber(name)
	return T(number)
}

// other names a value that a later version added.
func other(number uint8) string { return fmt.Sprintf("other (%d)", number) }

// otherNumber is the inverse of other, so that the later version reads its own value in a
// file that this version has written.
func otherNumber(name string) (number uint8, ok bool) {
	digits, ok := strings.CutPrefix(name, "other (")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(digits, ")"), 10, 8)
	if err != nil || other(uint8(n)) != name {
		return 0, false
	}
	return uint8(n), true
}

// Class is whose code a frame is.
type Class uint8

const (
	ClassUnknown Class = iota
	ClassApplication
	ClassLibrary
	ClassRuntime
	ClassKernel
)

var classNames = [...]string{"unknown", "application", "library", "runtime", "kernel"}

// String returns the class's name in files and on pages.
func (c Class) String() string {
	return nameOf(classNames[:], c)
}

// ParseClass is the inverse of String. An unknown name is ClassUnknown.
func ParseClass(name string) Class {
	return parseName[Class](classNames[:], name)
}

// Location is a place in code that means the same on every host and in every
// process: never a load address. It is comparable and serves as a map key.
//
// Code of a file has BuildID and Offset (in the file, not the address space). Kernel code
// has BuildID and Offset into the kernel image's text. Code that only a name identifies
// (interpreted code, or code read from a format without addresses) has Name, File and Line
// instead.
type Location struct {
	Kind    Kind
	BuildID string
	Offset  uint64
	Name    string
	File    string
	Line    int
}

// Frame is one function on a stack, as its developer would name it.
type Frame struct {
	Function  string // demangled, as shown
	Linkage   string // the linker's name where it differs, else empty
	File      string // source file
	Line      int    // line of the call or the sample, 0 if unknown
	StartLine int    // line where the function starts, 0 if unknown
	Mapping   string // the binary or script it came from
	Kind      Kind
	Class     Class
	Inlined   bool // was inlined into the frame that follows it
}

// Key identifies the function of a frame across builds and hosts, where addresses, lines and
// directories may differ.
func (f Frame) Key() FrameKey {
	file := f.File
	if file == "" && f.Kind != KindKernel {
		file = f.Mapping
	}
	return FrameKey{Function: f.Function, Kind: f.Kind, FileBase: base(file)}
}

// base is path.Base, without an allocation.
func base(file string) string {
	file = strings.TrimRight(file, "/")
	file = file[strings.LastIndexByte(file, '/')+1:]
	if file == "" {
		return "/"
	}
	return file
}

// FrameKey identifies a function across builds; see Frame.Key.
type FrameKey struct {
	Function string
	Kind     Kind
	FileBase string
}

func (k FrameKey) compare(o FrameKey) int {
	return cmp.Or(cmp.Compare(k.Function, o.Function), cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.FileBase, o.FileBase))
}

// Unnamed returns the frame of a location that has no name: binary+0xoffset.
func Unnamed(kind Kind, mapping string, offset uint64) Frame {
	base := "[unknown]"
	if mapping != "" {
		base = path.Base(mapping)
	}
	return Frame{Function: fmt.Sprintf("%s+0x%x", base, offset), Mapping: mapping, Kind: kind}
}

// IsUnnamed reports whether Unnamed made the frame.
func (f Frame) IsUnnamed() bool {
	base := "[unknown]"
	if f.Mapping != "" {
		base = path.Base(f.Mapping)
	}
	rest, ofBase := strings.CutPrefix(f.Function, base)
	offset, ok := strings.CutPrefix(rest, "+0x")
	if !ofBase || !ok {
		return false
	}
	_, err := strconv.ParseUint(offset, 16, 64)
	return err == nil
}

// End is how the walk of a stack ended. Its number is stored, sent and hashed as one byte.
// Later versions append ends, all of truncated stacks, so that an older version can treat
// every end that it does not know as truncated.
type End uint8

const (
	EndUnknown    End = iota // the source does not say (most file formats)
	EndComplete              // reached a known outermost frame
	EndNoUser                // there is no user stack: a kernel thread, or the idle task
	EndTooDeep               // more frames than the unwinder keeps
	EndNoMapping             // the pc was in no known mapping
	EndNoUnwind              // the code has no unwind information
	EndUnreadable            // the stack's memory was not resident
	EndUnsupport             // the unwind information is of an unsupported kind
	EndNotLoaded             // unwind information was still being loaded
	EndCorrupt               // the walk made no progress: the stack makes no sense
	EndLost                  // the stack was counted, but not stored: storage was full
	EndStarting              // unmapped or not loaded within 50 ms of exec or dlopen
	EndParked                // the outer frames of a virtual thread were not on the stack
	EndDamaged               // the rest was stored, and the disk lost it
	EndEvicted               // unwind information was evicted, before the walk or during it
	EndNoRoom                // there was no room for unwind information
)

// EndOther is an end of a later version, in a file that has names and no numbers.
const EndOther End = math.MaxUint8

var endNames = [...]string{"unknown", "complete", "no user stack", "too deep", "unmapped code", "no unwind information",
	"unreadable stack", "unsupported unwind information", "unwind information not loaded yet", "corrupt stack", "stack storage full", "process or library just started", "older frames of a parked virtual thread", "damaged where it was kept",
	"unwind information evicted", "no room for unwind information"}

// String returns the reason in words.
func (e End) String() string {
	switch {
	case int(e) < len(endNames):
		return endNames[e]
	case e == EndOther:
		return "other"
	}
	return other(uint8(e))
}

// ParseEnd is the inverse of String. An unknown reason is EndOther, an empty one
// EndUnknown.
func ParseEnd(reason string) End {
	if e, ok := LookupEnd(reason); ok || reason == "" {
		return e
	}
	return EndOther
}

// LookupEnd is ParseEnd for words that may not be a reason.
func LookupEnd(reason string) (e End, ok bool) {
	for i, n := range endNames {
		if n == reason {
			return End(i), true
		}
	}
	number, ok := otherNumber(reason)
	return End(number), ok
}

// Truncated reports whether frames are missing at the root.
func (e End) Truncated() bool { return e >= EndTooDeep }

// Labels describe what was profiled. A target has few of them, and they rarely change.
type Labels map[string]string

// String returns {a="b", c="d"}, sorted by key.
func (l Labels) String() string {
	b := []byte{'{'}
	for i, k := range sortedKeys(l) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, k...), '=')
		b = strconv.AppendQuote(b, l[k])
	}
	return string(append(b, '}'))
}

// Excerpt quotes foreign text for an error, short.
func Excerpt(text []byte) string {
	const most = 60
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "..."
	}
	return strconv.Quote(string(text))
}
