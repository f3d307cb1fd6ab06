package lang

import (
	"regexp"
	"strings"
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
