package main

import (
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
)

// frames reads a stack, outermost first: functions with the kind before a colon,
// native ones without.
func frames(stack string) (all []profile.Frame) {
	for _, text := range strings.Split(stack, ";") {
		f := profile.Frame{Kind: profile.KindNative, Function: text}
		if kind, name, ok := strings.Cut(text, "="); ok {
			f.Kind, f.Function = profile.ParseKind(kind), name
		}
		all = append(all, f)
	}
	return all
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name     string
		language *language
		stack    string
		want     found
	}{
		{"native only", python, "main;malloc", found{}},
		{"Python", python, "main;python=f;_PyEval_EvalFrameDefault;list_sort;python=key;_PyEval_EvalFrameDefault", found{entered: true}},
		{"Python without functions", python, "main;_PyEval_EvalFrameDefault;list_sort", found{entered: true, without: true, gap: true}},
		{"Python with a gap", python, "main;python=f;_PyEval_EvalFrameDefault;list_sort;_PyEval_EvalFrameDefault", found{entered: true, gap: true}},
		{"Python without a name", python, "main;python=[python function];_PyEval_EvalFrameDefault", found{entered: true, nameless: true}},
		{"Perl's sort blocks need no sub", perl, "main;perl=f;Perl_runops_standard;Perl_pp_sort;Perl_runops_standard", found{entered: true}},
		{"Perl without functions", perl, "main;Perl_runops_standard;Perl_pp_sort", found{entered: true, without: true}},
		{"Java", java, "start_thread;JavaCalls::call_helper(x);jit=[call_stub];java-interpreted=f;java-jit=g", found{entered: true}},
		{"Java without functions", java, "start_thread;JavaCalls::call_helper(x);jit=[call_stub]", found{entered: true, without: true, gap: true}},
		{"Java's compiler", java, "start_thread;Compilation::compile_method;jit=[flush_icache_stub]", found{}},
		{"JavaScript", node, "main;Builtins_JSEntry;v8=f;Builtins_CallFunction", found{entered: true}},
		{"JavaScript with a gap", node, "main;Builtins_JSEntry;v8=f;Builtins_JSEntry;Builtins_CallFunction", found{entered: true, gap: true}},
		{"WebAssembly", node, "main;Builtins_JSEntry;v8=f;v8=[wasm function]", found{entered: true}},
		{"a stub of .NET", dotnet, "main;dotnet=F;dotnet=[stub]", found{entered: true}},
		{".NET without a name", dotnet, "main;dotnet=F;jit=[code made at run time]", found{entered: true, nameless: true}},
		{"PHP's compiled code", php, "main;php=f;execute_ex;jit=[code made at run time]", found{entered: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.language.judge(frames(c.stack)); got != c.want {
				t.Errorf("%s: got %+v, want %+v", c.stack, got, c.want)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	v := newVerdict(python)
	v.add(frames("main;python=f;_PyEval_EvalFrameDefault;memcpy"), profile.EndComplete, 90)
	v.add(frames("main;python=f;_PyEval_EvalFrameDefault;qsort;_PyEval_EvalFrameDefault"), profile.EndComplete, 5)
	v.add(frames("_PyEval_EvalFrameDefault"), profile.EndNoUnwind, 3)
	v.add(frames("kernel=idle"), profile.EndNoUser, 1000)
	v.add(frames("main;[code]"), profile.EndCorrupt, 2)
	if v.samples != 100 || v.whole != 95 || v.complete != 95 || v.entered != 98 || v.without != 3 || v.gaps != 5 {
		t.Errorf("got %+v", *v)
	}
	if got, want := v.reasons(), "no unwind information 3, corrupt stack 2"; got != want {
		t.Errorf("reasons are %q, want %q", got, want)
	}
	var text strings.Builder
	v.explain(&text, "x", 1)
	if want := "== x: 100 samples, 95.00% whole\n     5  a gap: _PyEval_EvalFrameDefault < qsort < _PyEval_EvalFrameDefault < f (python) < main\n"; text.String() != want {
		t.Errorf("explains\n%s\nwant\n%s", text.String(), want)
	}
}
