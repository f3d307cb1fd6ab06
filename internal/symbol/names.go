package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

const (
	maxMangled   = 1 << 14 // bytes of a linker name that are demangled
	maxDemangled = 16      // log2 of what may come out: short names can stand for endless ones
	pltSuffix    = "@plt"
)

// demangled gives the name a developer would use: C++ and Rust names without
// parameters and hashes, but with template arguments. What compilers append to
// parts and clones of a function (.cold, .part.0, .constprop.1) stays: it is code
// of its own. ThinLTO's .llvm.1234 goes: it is a hash that every build changes.
func demangled(linkage string) string {
	if len(linkage) > maxMangled || !isMangled(linkage) {
		return linkage
	}
	name, plt := strings.CutSuffix(linkage, pltSuffix)
	name, suffix := cutClone(name)
	out, err := demangle.ToString(name, demangle.NoParams, demangle.MaxLength(maxDemangled))
	if err != nil {
		return linkage
	}
	out += suffix
	if plt {
		out += pltSuffix
	}
	return out
}

func isMangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") || strings.HasPrefix(name, "___Z")
}

// cutClone cuts the suffixes compilers add behind a mangled name: dots followed
// by a number or by lower-case letters. Dots inside of names (old Rust ones have
// them) are followed by more than that, since mangled names end in a capital.
func cutClone(name string) (base, suffix string) {
	base = name
	for {
		i := strings.LastIndexByte(base, '.')
		if i < 0 || strings.Trim(base[i+1:], "abcdefghijklmnopqrstuvwxyz_0123456789") != "" {
			break
		}
		base = base[:i]
	}
	suffix = name[len(base):]
	if i := strings.Index(suffix, ".llvm."); i >= 0 {
		suffix = suffix[:i]
	}
	return base, suffix
}
