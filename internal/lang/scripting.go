package lang

import (
	"fmt"
	"strings"
)

// readRuby reads the constants that every Ruby since 1.9 exports.
func readRuby(im *image) (Runtime, bool) {
	version := numbers(im.stringAt("ruby_version"))
	if version == "" {
		return Runtime{}, false
	}
	return Runtime{Kind: Ruby, Vendor: "CRuby", Version: version}, true
}

// readPHP reads the header that PHP sends: "X-Powered-By: PHP/8.2.36". Builds
// for threads keep their state per thread and export no executor_globals.
func readPHP(im *image) (Runtime, bool) {
	r := Runtime{Kind: PHP, Vendor: "PHP", Version: im.after("X-Powered-By: PHP/", numbers)}
	if !im.has("executor_globals") {
		r.Feature = "ZTS"
	}
	return r, true
}

// phpFeature adds what the process tells: opcache is loaded, and has code of
// its compiler in shared memory.
func phpFeature(feature string, opcache, code bool) string {
	words := strings.Fields(feature)
	if opcache || code {
		words = append(words, "opcache")
	}
	if code {
		words = append(words, "JIT")
	}
	return strings.Join(words, " ")
}

// readPerl reads the three constants, of a byte each, that Perl exports, or
// finds the version that perl -v prints: "v5.36.0" and a NUL.
func readPerl(im *image) (Runtime, bool) {
	r := Runtime{Kind: Perl, Vendor: "Perl", Version: perlVersion(im)}
	if r.Version == "" {
		r.Version = im.after("v5.", func(rest string) string {
			text, _, ok := strings.Cut(rest, "\x00")
			if v := numbers(text); ok && v == text && strings.Count(v, ".") == 1 {
				return "5." + v
			}
			return ""
		})
	}
	if im.has("PL_thr_key") {
		r.Feature = "ithreads"
	}
	return r, true
}

func perlVersion(im *image) string {
	var v [3]byte
	for i, name := range []string{"PL_revision", "PL_version", "PL_subversion"} {
		b := im.bytesAt(name, 1)
		if len(b) < 1 {
			return ""
		}
		v[i] = b[0]
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
}

// readLuaJIT finds "LuaJIT 2.1.0-beta3", or "LuaJIT 2.1.1700000000".
func readLuaJIT(im *image) (Runtime, bool) {
	return Runtime{Kind: LuaJIT, Vendor: "LuaJIT", Version: im.after("LuaJIT ", numbers)}, true
}
