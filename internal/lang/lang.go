// Package lang tells which language runtimes live in a process, which versions they are, and what the process is called as a service.
//
// The flow:
//
//	Detect    lists the files that a process maps code from, opens each
//	          through /proc, and puts what they hold together (detect.go)
//	inspect   recognises one file by the symbols it exports, reads its version
//	          from its own tables and strings; kept per file (inspect.go, and
//	          one file per runtime)
//	Support   says whether atys walks that version's frames, of such a build
//	          (support.go); readers of languages ask it too, by Told
//	Service   names the process: from its environment, container, unit,
//	          command line (service.go)
//
// Packages below read one language each, for walks and for names. What they
// have in common is here: what a file must export to hold their runtime, and the
// code of a function (exports.go), Read with the Notes of a file (read.go), where
// glibc keeps thread-specific values (glibc.go), and an Album of what walks
// photographed (album.go).
//
// Nothing is run, nothing is written, and no name of a file is trusted where
// the file itself can be read. What is read was written by others: every
// reader is bounded and none panics.
package lang

import (
	"cmp"
	"strings"

	"atys.dev/atys/internal/proc"
)

// Kind is a runtime, or the lack of one.
type Kind string

// The runtimes that are told apart.
const (
	Python      Kind = "python"
	HotSpot     Kind = "hotspot"
	OpenJ9      Kind = "openj9"
	NativeImage Kind = "native-image" // GraalVM's
	Node        Kind = "node"
	Deno        Kind = "deno"
	Bun         Kind = "bun"
	Ruby        Kind = "ruby"
	PHP         Kind = "php"
	Perl        Kind = "perl"
	DotNet      Kind = "dotnet"
	BEAM        Kind = "beam"
	LuaJIT      Kind = "luajit"
	Mono        Kind = "mono"
	Go          Kind = "go"
	Native      Kind = "native" // C, C++, Rust and all else that is compiled ahead
)

// Runtime is one language runtime in a process.
type Runtime struct {
	Kind   Kind
	Vendor string // "CPython", "PyPy"; "Debian", "Eclipse Adoptium"; "Node.js", "Electron"; of native code its language, as far as it tells
	// Version is in numbers, as two of them compare: "3.11.7", "17.0.15"; for
	// Java 8 "8.0.272". It is empty, or has fewer numbers, where less is known.
	Version string
	Update  string // of a JVM, the version as its makers write it: "8u272", "17.0.15+6-Debian-1deb12u1"
	Engine  string // what is inside: of Node "V8 11.3.244.8", of BEAM "erts 13.1.5"
	Feature string // what changes how it is read: "free-threaded", "ZTS", "JIT"
	Lacks   string // what its file has not and walks need, whatever the version; "": nothing
	JFR     bool   // of a JVM: recordings of JDK Flight Recorder can be started
	Libc    string // of the process: "glibc 2.36", "musl"; "" unknown
	Path    string // of the file that holds it, in the mount namespace of the process
	// Code is the first mapping of code of that file: MapFile opens it.
	Code   proc.Mapping
	Walked bool   // atys' own unwinder reads its frames
	Why    string // where it does not, something is missing, or it was never tried: the reason
}

// Name is the runtime as people write it: "java 8u272", "php 8.2.36 (JIT)".
func (r Runtime) Name() string {
	name, version := string(r.Kind), r.Version
	var remarks []string
	switch r.Kind {
	case HotSpot:
		name = "java"
		if strings.HasPrefix(r.Update, "8u") {
			version = r.Update
		}
		remarks = append(remarks, r.Vendor)
	case Native:
		name = strings.ToLower(cmp.Or(r.Vendor, name))
	case Node:
		if r.Vendor == "Electron" { // whose own version is nowhere to be read
			return "electron (" + strings.TrimRight("node "+version, " ") + ")"
		}
	case Python:
		if r.Vendor == "PyPy" {
			name = "pypy"
		}
	}
	remarks = append(remarks, r.Feature)
	if version != "" {
		name += " " + version
	}
	if remark := strings.TrimSpace(strings.Join(remarks, " ")); remark != "" {
		name += " (" + remark + ")"
	}
	return name
}
