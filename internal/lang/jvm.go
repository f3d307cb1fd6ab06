package lang

import (
	"bytes"
	"encoding/binary"
	"io"
	"path"
	"regexp"
	"strings"

	"atys.dev/atys/internal/proc"
)

// jvmVersion is a version of Java 8 ("1.8.0_272-b10") or of later ones
// ("17.0.15+6-Debian-1deb12u1") in parentheses. Some vendors put their own
// before it: "JRE (Zulu 8.66.0.15-CA-linux64) (1.8.0_352-b08)".
var jvmVersion = regexp.MustCompile(`\((\d+(?:\.\d+)*[^() ]*)\)`)

// readHotSpot reads the version of a libjvm from the sentence that it prints
// in crash reports: "OpenJDK 64-Bit Server VM (25.272-b10) for linux-amd64 JRE
// (1.8.0_272-b10), built on ...".
func readHotSpot(im *image) (Runtime, bool) {
	r := Runtime{Kind: HotSpot}
	text := im.after(") for linux", func(rest string) string {
		_, rest, ok := strings.Cut(rest, " JRE ")
		if m := jvmVersion.FindStringSubmatch(rest); ok && m != nil {
			return m[1]
		}
		return ""
	})
	r.Version, r.Update = javaVersion(text)
	release := im.release()
	if release["JAVA_VERSION"] != "" && !sameJava(release["JAVA_VERSION"], r.Version) {
		release = nil // of the JDK that has replaced this one
	}
	r.Vendor = release["IMPLEMENTOR"]
	if r.Version == "" {
		r.Version, r.Update = javaVersion(release["JAVA_VERSION"])
	}
	r.JFR = im.holds("jdk/jfr/internal/JVM") && im.hasFlightRecorder(r.Version, release)
	return r, true
}

// sameJava compares what release files and libjvm say: "1.8.0_272" and "8.0.272".
func sameJava(release, version string) bool {
	v, _ := javaVersion(release)
	return v == version || version == ""
}

// javaVersion makes numbers that compare, and the name of the update.
func javaVersion(text string) (version, update string) {
	if rest, ok := strings.CutPrefix(text, "1.8.0"); ok {
		build := numbers(strings.TrimPrefix(rest, "_"))
		if build == "" {
			return "8", "8"
		}
		return "8.0." + build, "8u" + build
	}
	return numbers(text), text
}

// release reads the file in the root of a JDK, at NAME="value" per line.
// libjvm.so is in lib/server of it, or in [jre/]lib/amd64/server of a Java 8.
func (im *image) release() map[string]string {
	for _, up := range []string{"../../release", "../../../release", "../../../../release"} {
		if values := parseRelease(im.read(up)); values["JAVA_VERSION"] != "" {
			return values
		}
	}
	return nil
}

func parseRelease(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok {
			values[name] = strings.Trim(value, `"`)
		}
	}
	return values
}

// hasFlightRecorder reports whether the Java half of Flight Recorder is there.
// It is free from 11 on, and in 8 since OpenJDK 8u262; in 9 and 10 and Oracle's
// 8 it wants a licence. JDKs put together by jlink may lack its module.
func (im *image) hasFlightRecorder(version string, release map[string]string) bool {
	major, _ := series(version)
	switch {
	case major == 8:
		return im.sibling("../../jfr.jar")
	case major < 11:
		return false
	}
	modules := release["MODULES"]
	return modules == "" || strings.Contains(" "+modules+" ", " jdk.jfr ")
}

// readOpenJ9 reads an Eclipse OpenJ9, which is a JVM but no HotSpot.
func readOpenJ9(im *image) (Runtime, bool) {
	r := Runtime{Kind: OpenJ9, Vendor: "Eclipse OpenJ9"}
	release := im.release()
	r.Version, r.Update = javaVersion(release["JAVA_VERSION"])
	if release["IMPLEMENTOR"] != "" {
		r.Vendor = release["IMPLEMENTOR"]
	}
	return r, true
}

// readNativeImage reads a program that GraalVM compiled ahead of time:
// "com.oracle.svm.core.VM=GraalVM 22.3.0 Java 17 CE".
func readNativeImage(im *image) (Runtime, bool) {
	r := Runtime{Kind: NativeImage, Vendor: "GraalVM"}
	r.Update = im.after("com.oracle.svm.core.VM=", func(rest string) string {
		end := strings.IndexFunc(rest, func(c rune) bool { return c < ' ' || c > '~' })
		return rest[:max(end, 0)]
	})
	for _, word := range strings.Fields(r.Update) {
		if v := numbers(word); strings.Contains(v, ".") {
			r.Version = v
			break
		}
	}
	return r, true
}

// Properties of a JVM in its performance data.
const (
	perfVendor  = "java.property.java.vm.vendor"
	perfCommand = "sun.rt.javaCommand" // main class or jar, and arguments
)

const maxPerfData = 1 << 20 // bytes; a JVM has 32 KiB

// jvmProperties reads the performance data that a JVM maps from a file of its
// own, /tmp/hsperfdata_USER/PID, unless it was told not to.
func (d *Detector) jvmProperties(pid int, maps []proc.Mapping) map[string]string {
	for _, m := range maps {
		if m.Backing != proc.BackingFile || !strings.HasPrefix(path.Base(path.Dir(m.Path)), "hsperfdata_") {
			continue
		}
		file, err := d.FS.MapFile(pid, m)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(file, maxPerfData))
		file.Close()
		if err == nil {
			return parsePerfData(data)
		}
	}
	return nil
}

// parsePerfData returns the strings in the performance data of a JVM, version
// 2 of the format, which all since Java 5 write (little-endian here):
//
//	magic ca fe c0 c0 | byte order 1 | major 1 | minor 1 | accessible 1
//	used 4 | overflow 4 | modified 8 | first entry 4 | entries 4
//	entry: length 4 | name 4 | elements 4 | type 1 | flags 1 | unit 1 | variability 1 | data 4
//	       with name and data as offsets into the entry
func parsePerfData(data []byte) map[string]string {
	const header, entryHeader = 32, 20
	if len(data) < header || !bytes.Equal(data[:6], []byte{0xca, 0xfe, 0xc0, 0xc0, 1, 2}) {
		return nil
	}
	word := func(b []byte, at int) uint64 { return uint64(binary.LittleEndian.Uint32(b[at:])) }
	at, entries := word(data, 24), word(data, 28)
	values := map[string]string{}
	for ; entries > 0 && at+entryHeader <= uint64(len(data)); entries-- {
		entry := data[at:]
		length := word(entry, 0)
		if length < entryHeader || length > uint64(len(entry)) {
			break
		}
		entry = entry[:length]
		name, value, elements := word(entry, 4), word(entry, 16), word(entry, 8)
		if entry[12] == 'B' && elements > 0 && name < length && value < length {
			text := entry[value:]
			text = text[:min(elements, uint64(len(text)))]
			values[untilNUL(entry[name:])] = untilNUL(text)
		}
		at += length
	}
	return values
}

func untilNUL(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
