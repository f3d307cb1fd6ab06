package lang

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
)

// pythonName finds "3.11" in libpython3.11.so.1.0, libpython3.7m.so, python3.11.
var pythonName = regexp.MustCompile(`^(?:lib)?python(\d\.\d{1,2})(?:\D|$)`)

// pythonDirectory is what follows "python" in the name of the directory of the
// standard library, which is compiled in: within a path, ending one, or alone.
var pythonDirectory = regexp.MustCompile(`^(\d\.\d{1,2})[/\x00]`)

// readPython reads the version of a CPython, from the surest source it has:
// the constant Py_Version (3.11 and later), the debug offsets (3.13 and
// later), or the string that Py_GetVersion prints.
func readPython(im *image) (Runtime, bool) {
	r := Runtime{Kind: Python, Vendor: "CPython"}
	if b := im.bytesAt("Py_Version", 4); len(b) == 4 {
		r.Version, r.Update = pythonHex(binary.LittleEndian.Uint32(b))
	}
	if hex, freeThreaded, ok := debugOffsets(im.bytesAt("_PyRuntime", 24)); ok {
		if r.Version == "" {
			r.Version, r.Update = pythonHex(hex)
		}
		if freeThreaded {
			r.Feature = "free-threaded"
		}
	}
	if r.Version != "" {
		return r, true
	}
	series := ""
	if m := pythonName.FindStringSubmatch(im.base()); m != nil {
		series = m[1]
	} else {
		series = cmp.Or(im.after("/python", pythonSeries), im.after("\x00python", pythonSeries))
	}
	if series == "" {
		return r, true
	}
	r.Version = im.after(series+".", func(rest string) string { return pythonMicro(series, rest) })
	if r.Version == "" {
		r.Version = series
	}
	return r, true
}

func pythonSeries(rest string) string {
	m := pythonDirectory.FindStringSubmatch(rest)
	if m == nil {
		return ""
	}
	return m[1]
}

// pythonMicro reads what follows "3.10." where the string is a whole version.
func pythonMicro(series, rest string) string {
	text, _, ended := strings.Cut(rest, "\x00")
	micro := numbers(text)
	if !ended || micro == "" || strings.Contains(micro, ".") || len(micro) > 2 {
		return ""
	}
	switch mark := text[len(micro):]; {
	case mark == "", mark == "+", len(mark) <= 4 && strings.Trim(mark, "abrc0123456789+") == "":
		return series + "." + micro
	}
	return ""
}

// pythonHex reads PY_VERSION_HEX: major, minor, micro in a byte each, then 4
// bits of level (a, b, c, f) and 4 of serial.
func pythonHex(v uint32) (version, update string) {
	major, minor, micro := v>>24, v>>16&0xff, v>>8&0xff
	if major != 3 {
		return "", ""
	}
	version = fmt.Sprintf("%d.%d.%d", major, minor, micro)
	if level, ok := map[uint32]string{0xa: "a", 0xb: "b", 0xc: "rc"}[v>>4&0xf]; ok {
		update = fmt.Sprintf("%s%s%d", version, level, v&0xf)
	}
	return version, update
}

// debugOffsets reads the head of _Py_DebugOffsets, with which _PyRuntime
// begins since 3.13:
//
//	"xdebugpy" | PY_VERSION_HEX 8 | free-threaded 8 | offsets ...
func debugOffsets(b []byte) (hex uint32, freeThreaded, ok bool) {
	if len(b) < 24 || string(b[:8]) != "xdebugpy" {
		return 0, false, false
	}
	return uint32(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:]) != 0, true
}

// readPyPy reads a PyPy, which has neither CPython's frames nor its symbols.
func readPyPy(im *image) (Runtime, bool) {
	r := Runtime{Kind: Python, Vendor: "PyPy"}
	if _, rest, ok := strings.Cut(im.base(), "pypy"); ok {
		r.Version = numbers(rest)
	}
	return r, true
}
