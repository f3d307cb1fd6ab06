package python

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"

	"atys.dev/atys/internal/binfile"
)

// exportedMinor reads the version that files export since 3.11; 0 without it.
func exportedMinor(f *binfile.File) (int, error) {
	s, ok := f.Exports().Lookup("Py_Version")
	if !ok {
		return 0, nil
	}
	var word [4]byte
	if n, _ := f.ReadAddress(word[:], s.Address); n < len(word) {
		return 0, nil
	}
	return minorOf(binary.LittleEndian.Uint32(word[:]))
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

const (
	libraryName  = "python3."
	maxConstants = 1 << 26
)

// minorWithin finds the directory of the standard library, which is compiled
// in: "/python3.9/", or one of them ending a string; 0 without it.
func minorWithin(f *binfile.File) int {
	data, err := f.SectionData(".rodata", maxConstants)
	if err != nil {
		return 0
	}
	for {
		i := bytes.Index(data, []byte(libraryName))
		if i < 0 {
			return 0
		}
		begins := i > 0 && isBorder(data[i-1])
		data = data[i+len(libraryName):]
		digits := 0
		for digits < 3 && digits < len(data) && data[digits] >= '0' && data[digits] <= '9' {
			digits++
		}
		if begins && digits > 0 && digits < 3 && digits < len(data) && isBorder(data[digits]) {
			minor, _ := strconv.Atoi(string(data[:digits]))
			return minor
		}
	}
}

// isBorder tells the ends of a directory's name in a path or a string.
func isBorder(c byte) bool { return c == 0 || c == '/' }
