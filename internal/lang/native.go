package lang

import (
	"debug/buildinfo"
	"strings"
)

// readGo reads the version of the toolchain that made a Go program.
func readGo(im *image) Runtime {
	r := Runtime{Kind: Go, Vendor: "Go"}
	if info, err := buildinfo.Read(im.file); err == nil {
		r.Version = numbers(strings.TrimPrefix(info.GoVersion, "go"))
		if r.Version == "" {
			r.Update = info.GoVersion[:min(len(info.GoVersion), maxVersion)] // "devel go1.27-abc"
		}
	}
	return r
}

const maxComment = 64 << 10 // bytes of .comment, where each compiler leaves a line

// readLanguage tells the language of a compiled program, as far as it left a
// trace: Rust's compiler in .comment or in the paths of panics, C++ in the
// libraries it needs.
func readLanguage(im *image) string {
	comment, _ := im.file.SectionData(".comment", maxComment)
	if strings.Contains(string(comment), "rustc version") || im.has("rust_eh_personality") || im.holds("/rustc/") {
		return "Rust"
	}
	libraries, _ := im.file.ELF.ImportedLibraries()
	for _, name := range libraries {
		if strings.HasPrefix(name, "libstdc++.so") || strings.HasPrefix(name, "libc++.so") {
			return "C++"
		}
	}
	return ""
}

// readLibc tells the C library by the file it is in. Of musl, that file is the
// dynamic linker too.
func readLibc(im *image) string {
	base := im.base()
	switch {
	case nameOfMusl(base):
		return "musl"
	case base == "libc.so" && im.holds("musl libc"):
		return "musl"
	case base == "libc.so.6", strings.HasPrefix(base, "libc-2."), strings.HasPrefix(base, "ld-linux-"), strings.HasPrefix(base, "ld-2."):
		return strings.TrimRight("glibc "+im.after("stable release version ", numbers), " ")
	}
	return ""
}
