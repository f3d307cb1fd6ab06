package format

import (
	"bytes"
	"errors"
	"regexp"
)

// Errors for files that are no profile, or one that another tool must convert first.
var (
	errEmpty = errors.New("the file is empty")
	errJSON  = errors.New("it is JSON: speedscope and .cpuprofile files can be written, not read")
	errPerf  = errors.New("it is perf's own recording: convert it by `perf script -i FILE > FILE.txt` and read that")
	errJFR   = errors.New("it is a Java Flight Recorder file, which cannot be read")
	errELF   = errors.New("it is a program, not a profile")
)

// Texts among the formats that pprof calls legacy begin like this.
var legacyText = regexp.MustCompile(`^(--- ?[a-z]+|[a-z]+ profile: |(heap|growth|fragmentation)z? )`)

// detect tells the format by how a file begins. Binary is pprof; the texts are
// told apart by their lines: frames of perf script are indented, lines of
// folded stacks end in a count.
func detect(head []byte) (Format, error) {
	switch {
	case len(head) == 0:
		return "", errEmpty
	case bytes.HasPrefix(head, []byte("PERFILE")):
		return "", errPerf
	case bytes.HasPrefix(head, []byte("FLR\x00")):
		return "", errJFR
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return "", errELF
	case bytes.HasPrefix(head, []byte("{\n")), bytes.HasPrefix(head, []byte(`{"`)):
		return "", errJSON
	case bytes.IndexByte(head, 0) >= 0, !isText(head):
		return PProf, nil
	case legacyText.Match(head):
		return PProf, nil
	case bytes.HasPrefix(head, []byte("# ========")):
		return PerfScript, nil
	}
	counts, heads, others := 0, 0, 0
	for line := range bytes.Lines(head) {
		if frameLine.Match(line) {
			return PerfScript, nil
		}
		switch line = bytes.TrimSpace(line); {
		case len(line) == 0 || line[0] == '#':
		case countLine.Match(line):
			counts++
		case headerLine.Match(line):
			heads++
		default:
			others++
		}
	}
	// perf script without call chains has no indented lines; its lines end in names.
	if heads > counts+others {
		return PerfScript, nil
	}
	return Folded, nil
}

var (
	frameLine  = regexp.MustCompile(`^[ \t]+[0-9a-f]{6,16}[ \t]+\S`)
	countLine  = regexp.MustCompile(`[ \t]-?[0-9]+(\.[0-9]*)?(e\+?[0-9]+)?$`)
	headerLine = regexp.MustCompile(`[ \t]([0-9]+\.[0-9]+|[A-Za-z][^ \t;]*):([ \t]|$)`)
)

// isText tells text from protobuf: control characters other than space ones
// are in no profile's text, and in every protobuf's tags.
func isText(head []byte) bool {
	return !bytes.ContainsFunc(head, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' && r != 0x1b })
}
