package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"

	"atys.dev/atys/internal/binfile"
)

// version tells x of CPython 3.x. Since 3.11 the file itself does; before, its
// name does, or the names of what it looks for.
func version(f *binfile.File, at string) (int, error) {
	if s, ok := f.Exports().Lookup("Py_Version"); ok {
		var word [4]byte
		if n, _ := f.ReadAddress(word[:], s.Address); n == len(word) {
			return minorOf(binary.LittleEndian.Uint32(word[:]))
		}
	}
	if minor, ok := minorNamed(path.Base(at)); ok {
		return minor, nil
	}
	if minor, ok := minorWithin(f); ok {
		return minor, nil
	}
	return 0, errors.New("its version cannot be told: the file has neither Py_Version nor a name with it")
}

// minorOf reads PY_VERSION_HEX.
func minorOf(hex uint32) (int, error) {
	if major := hex >> 24; major != 3 {
		return 0, fmt.Errorf("version %d.%d is not 3", major, hex>>16&0xff)
	}
	return int(hex >> 16 & 0xff), nil
}

var versionedName = regexp.MustCompile(`^(?:lib)?python3\.(\d{1,2})(?:[dmu]*)(?:$|[^\d.]|\.so)`)

// minorNamed reads a file's name: libpython3.9.so.1.0, python3.7m.
func minorNamed(name string) (int, bool) {
	m := versionedName.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	minor, err := strconv.Atoi(m[1])
	return minor, err == nil
}

var libraryName = regexp.MustCompile(`[\x00/]python3\.(\d{1,2})[\x00/]`)

// minorWithin finds the directory of the standard library, which is compiled in.
func minorWithin(f *binfile.File) (int, bool) {
	s := f.Section(".rodata")
	if s == nil || s.Size > 1<<26 {
		return 0, false
	}
	data, err := io.ReadAll(io.NewSectionReader(f, int64(s.Offset), int64(s.FileSize)))
	if err != nil {
		return 0, false
	}
	m := libraryName.FindSubmatch(data)
	if m == nil {
		return 0, false
	}
	minor, err := strconv.Atoi(string(m[1]))
	return minor, err == nil
}
