package lang

import (
	"regexp"
	"strings"
)

// frameworkPath is where shared runtimes of .NET lie.
var frameworkPath = regexp.MustCompile(`/Microsoft\.NETCore\.App[^/]*/(\d+\.\d+\.\d+[^/]*)/`)

// readDotNet reads .NET: a shared libcoreclr.so, a program that contains it, or
// one compiled ahead of time, whose frames are native.
func readDotNet(im *image) (Runtime, bool) {
	r := Runtime{Kind: DotNet, Vendor: ".NET"}
	if m := frameworkPath.FindStringSubmatch(im.path); m != nil {
		r.Version = numbers(m[1])
	} else {
		r.Version = im.after("@(#)Version ", numbers)
	}
	if !im.has("coreclr_initialize") {
		switch {
		case im.has("DotNetRuntimeInfo"):
			r.Feature = "single file"
		default:
			r.Feature = "NativeAOT"
		}
	}
	return r, true
}

// readBEAM reads the sentence that erl begins with: "Erlang/OTP 25%s
// [erts-13.1.5] [source] ... [jit".
func readBEAM(im *image) (Runtime, bool) {
	r := Runtime{Kind: BEAM, Vendor: "Erlang/OTP"}
	im.after("Erlang/OTP ", func(rest string) string {
		rest, _, _ = strings.Cut(rest, "\x00")
		_, erts, ok := strings.Cut(rest, "[erts-")
		if !ok || numbers(rest) == "" {
			return ""
		}
		r.Version, r.Engine = numbers(rest), "erts "+numbers(erts)
		if strings.Contains(rest, "[jit") {
			r.Feature = "JIT"
		}
		return r.Version
	})
	return r, true
}

// readMono reads a Mono; its version stands nowhere that could be told from
// other numbers.
func readMono(*image) (Runtime, bool) {
	return Runtime{Kind: Mono, Vendor: "Mono"}, true
}
