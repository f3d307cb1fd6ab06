package selection

import (
	"fmt"
	"slices"
	"strings"

	"atys.dev/atys/internal/profile"
)

// Kinds is a set of kinds of frames; the zero set is none asked for.
type Kinds uint64

// kindsOf makes a set.
func kindsOf(kinds ...profile.Kind) (set Kinds) {
	for _, k := range kinds {
		set |= 1 << k
	}
	return set
}

// Has tells whether a kind is in the set.
func (s Kinds) Has(k profile.Kind) bool { return k < 64 && s&(1<<k) != 0 }

// languages are the names by which users know kinds; the first ones are shown.
func languages() []language {
	return []language{
		{kindsOf(profile.KindPython), []string{"python", "py"}},
		{kindsOf(profile.KindJavaCompiled, profile.KindJavaInterpreted), []string{"java", "jvm"}},
		{kindsOf(profile.KindV8), []string{"javascript", "js", "node", "v8"}},
		{kindsOf(profile.KindRuby), []string{"ruby"}},
		{kindsOf(profile.KindPHP), []string{"php"}},
		{kindsOf(profile.KindPerl), []string{"perl"}},
		{kindsOf(profile.KindDotNet), []string{"dotnet", ".net", "csharp"}},
		{kindsOf(profile.KindBEAM), []string{"beam", "erlang", "elixir"}},
		{kindsOf(profile.KindNative), []string{"native", "c", "c++", "go", "rust"}},
		{kindsOf(profile.KindJIT), []string{"jit"}},
		{kindsOf(profile.KindKernel), []string{"kernel"}},
	}
}

type language struct {
	kinds Kinds
	names []string
}

// LanguageNames lists the names that Languages takes, one for each language.
func LanguageNames() []string {
	var names []string
	for _, l := range languages() {
		names = append(names, l.names[0])
	}
	return names
}

// Languages gives the kinds of frames of languages, named with commas between
// them. All that is compiled before it runs is native.
func Languages(text string) (set Kinds, err error) {
	for name := range strings.SplitSeq(text, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		found := slices.IndexFunc(languages(), func(l language) bool { return slices.Contains(l.names, name) })
		if found < 0 {
			return 0, fmt.Errorf("no language %q: want some of %s", name, strings.Join(LanguageNames(), ", "))
		}
		set |= languages()[found].kinds
	}
	return set, nil
}
