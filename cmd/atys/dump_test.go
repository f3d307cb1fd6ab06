package main

import (
	"slices"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/profile/whose"
)

func TestChoose(t *testing.T) {
	python, err := selection.Languages("python")
	if err != nil {
		t.Fatal(err)
	}
	stack := []profile.Frame{
		{Kind: profile.KindKernel, Function: "do_syscall_64"},
		{Kind: profile.KindNative, Function: "_PyEval_EvalFrameDefault", Mapping: "/usr/lib/libpython3.11.so.1.0"},
		{Kind: profile.KindPython, Function: "get", File: "/usr/lib/python3/site-packages/requests/api.py", Line: 1},
		{Kind: profile.KindPython, Function: "main", File: "/srv/shop/main.py", Line: 2},
	}
	for _, c := range []struct {
		name  string
		flags codeFlags
		want  []string
	}{
		{"all", codeFlags{}, []string{"do_syscall_64", "_PyEval_EvalFrameDefault", "get", "main"}},
		{"hide runtime", codeFlags{hideRuntime: true}, []string{"get", "main"}},
		{"own", codeFlags{own: true}, []string{"main"}},
		{"language", codeFlags{languages: kinds{Kinds: python}}, []string{"get", "main"}},
	} {
		var got []string
		for _, f := range c.flags.choose(slices.Clone(stack), whose.New(nil)) {
			got = append(got, f.Function)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
