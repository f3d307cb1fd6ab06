package whose

import (
	"testing"

	"atys.dev/atys/internal/profile"
)

// What parses is written such that it parses to the same and classes the same.
func FuzzParse(f *testing.F) {
	f.Add(builtinText)
	f.Add("library file \"/a b\" # c\napplication function ^x$")
	f.Add("runtime kind python\nkernel package a.b:: c\nlibrary binary **/a?b/ *.so.*")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("%q became %q, then %v and %v", text, r, again, err)
		}
		one, two := newRuleset(r), newRuleset(again)
		for k := profile.KindUnknown; k <= profile.KindJIT; k++ {
			s := subjectOf(profile.Frame{Function: text, File: text, Mapping: text, Kind: k})
			first, found := one.class(s)
			if second, ok := two.class(s); ok != found || first != second {
				t.Fatalf("%q, kind %s: %s, then %s", text, k, first, second)
			}
		}
	})
}

func TestGlobs(t *testing.T) {
	for _, test := range []struct {
		pattern, file string
		want          bool
	}{
		{"libc.so", "/usr/lib/libc.so", true},
		{"libc.so", "libc.so", true},
		{"libc.so", "/usr/lib/xlibc.so", false},
		{"libc.so", "/usr/lib/libc.so.6", false},
		{"libc*so", "/usr/lib/libc/so", false},
		{"python?", "/bin/python3", true},
		{"python?", "/bin/python", false},
		{"/usr/*/a", "/usr/lib/a", true},
		{"/usr/*/a", "/usr/lib/x/a", false},
		{"/usr/**/a", "/usr/lib/x/a", true},
		{"/usr/**/a", "/usr/a", true},
		{"/usr/**", "/usr/lib/x", true},
		{"/usr/**", "/srv/usr/lib/x", false},
		{"usr/**", "/srv/usr/lib/x", true},
		{"gems/", "/var/gems/x/y.rb", true},
		{"gems/", "/var/gems", false},
		{"gems/", "/var/mygems/x", false},
		{"a.b+(c", "/a.b+(c", true},
		{"a.b", "/axb", false},
		{"<frozen *", "<frozen importlib._bootstrap>", true},
		{"node:**", "node:internal/timers", true},
		{"é?", "/éé", true},
	} {
		re, err := compileGlob(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := re.MatchString(test.file); got != test.want {
			t.Errorf("%q and %q: %v", test.pattern, test.file, got)
		}
	}
}
