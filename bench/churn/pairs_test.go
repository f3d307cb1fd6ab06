package main

import (
	"testing"

	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
)

// stack is frames of Java, outermost first; a file follows a name after a space.
func stack(functions ...[2]string) (out []profile.Frame) {
	for _, f := range functions {
		out = append(out, profile.Frame{Kind: profile.KindPython, Function: f[0], File: f[1]})
	}
	return out
}

func TestPairs(t *testing.T) {
	none := func(names ...string) (out [][2]string) {
		for _, n := range names {
			out = append(out, [2]string{n, ""})
		}
		return out
	}
	for name, tt := range map[string]struct {
		stack          [][2]string
		pairs, illegal int64
	}{
		"legal":               {none("Churning.work", "Made000007.go", "Made000007.outer000007", "Late000007.middle000007", "Made000007.inner000007"), 4, 0},
		"legal without class": {none("churn", "go000007", "outer000007", "middle000007"), 3, 0},
		"another number":      {none("churn", "go000007", "outer000008"), 2, 1},
		"one is skipped":      {none("churn", "go000007", "middle000007"), 2, 1},
		"backwards":           {none("churn", "middle000007", "outer000007"), 2, 2},
		"twice":               {none("churn", "go000007", "go000007"), 2, 1},
		"from nowhere":        {none("sort", "go000007"), 1, 1},
		"to elsewhere":        {none("churn", "go000007", "sort"), 2, 1},
		"class and name":      {none("churn", "Made000007.go000008"), 1, 1},
		"file and name":       {[][2]string{{"churn", ""}, {"go000007", "made000008.py"}}, 1, 1},
		"the template's file": {[][2]string{{"churn", ""}, {"Made000007.go", "Made000000.java"}}, 1, 0},
		"without a name":      {none("churn", "[python function]", "inner000007"), 0, 0},
		"nothing made":        {none("churn", "sort"), 0, 0},
		"constructors":        {none("Churning.work", "Late000007.<init>", "Made000007.<init>", "Churning$Work.<init>"), 3, 0},
	} {
		var s seen
		s.init()
		s.check(stack(tt.stack...), 3)
		if s.pairs != 3*tt.pairs || s.wrong() != 3*tt.illegal {
			t.Errorf("%s: %d pairs, %v; want %d and %d, three times each", name, s.pairs, s.illegal, tt.pairs, tt.illegal)
		}
	}
}

// Native frames between are no neighbours, and other languages' are left out.
func TestPairsOfTheLanguage(t *testing.T) {
	w := &profile.Window{
		Locations: make([]profile.Location, 4),
		Names: [][]profile.Frame{
			{{Function: "outer000001", Kind: profile.KindPython}}, {{Function: "eval", Kind: profile.KindNative}},
			{{Function: "go000001", Kind: profile.KindPython}}, {{Function: "churn", Kind: profile.KindPython}},
		},
		Stacks: []profile.Stack{{Locations: []profile.LocationID{0, 1, 2, 3}, End: profile.EndTooDeep}, {Locations: []profile.LocationID{1}}},
		Rows:   profile.RowsOf(0, profile.Row{Stack: 0, N: 5}, profile.Row{Stack: 1, N: 7}),
	}
	var s seen
	s.add(runtimes.Runtime{Kinds: []profile.Kind{profile.KindPython}}, w)
	if s.samples != 5 || s.made != 5 || s.cut != 5 || s.pairs != 10 || s.wrong() != 0 || len(s.numbers) != 1 {
		t.Errorf("%+v", s)
	}
}
