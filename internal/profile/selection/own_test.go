package selection

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
)

// classed makes a window of one-sample stacks, root first, of frames such as
// "app:serve"; "so:" is a native library's. A stack that begins with ! is cut.
func classed(lines ...string) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	b.Head().Exact.CPU = 100
	frames := map[string]profile.Frame{
		"app": {Class: profile.ClassApplication, Kind: profile.KindPython},
		"any": {},
		"lib": {Class: profile.ClassLibrary, Kind: profile.KindPython},
		"mod": {Class: profile.ClassLibrary, Kind: profile.KindNative, Mapping: "/srv/shop"},
		"so":  {Class: profile.ClassLibrary, Kind: profile.KindNative, Mapping: "/usr/lib/libc.so.6"},
		"run": {Class: profile.ClassRuntime, Kind: profile.KindNative, Mapping: "/usr/bin/python3"},
		"k":   {Class: profile.ClassKernel, Kind: profile.KindKernel},
	}
	for _, line := range lines {
		line, cut := strings.CutPrefix(line, "!")
		end := profile.EndComplete
		if cut {
			end = profile.EndTooDeep
		}
		var stack []profile.LocationID
		for _, word := range strings.Fields(line) {
			class, name, _ := strings.Cut(word, ":")
			f := frames[class]
			f.Function = name
			stack = append([]profile.LocationID{b.Named(f)}, stack...)
		}
		b.Add(profile.Row{Stack: b.Stack(stack, end), N: 1, Values: []int64{1}, Squares: []float64{1}})
	}
	return b.Window()
}

func TestOwnAndHideRuntime(t *testing.T) {
	for name, test := range map[string]struct{ stack, own, hidden string }{
		"a leaf of their own":    {"so:start run:eval app:main lib:json app:hook", "main;hook", "main;json;hook"},
		"called into a library":  {"run:eval app:main lib:json run:eval so:memcpy k:fault", "main", "main;json"},
		"nobody knows":           {"app:main any:mystery so:read", "main;mystery", "main;mystery"},
		"linked into a program":  {"so:start app:main mod:grpc so:write", "main", "main;grpc"},
		"a collector":            {"so:clone run:mark k:fault", "[runtime]", "[runtime]"},
		"a library's own thread": {"so:clone so:poll k:poll", "[library]", "[library]"},
		"a library's thread":     {"lib:bootstrap lib:tick", "[library]", "bootstrap;tick"},
		"a kernel thread":        {"k:kswapd", "[kernel]", "[kernel]"},
		"nothing":                {"", "[no frames]", "[no frames]"},
		"cut, with own frames":   {"!lib:a app:b so:c", "[too deep];b", "[too deep];a;b"},
		"cut before them":        {"!run:eval so:c", "[too deep]", "[too deep]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := classed(test.stack)
			if got := stacks(Own(w)); !maps.Equal(got, map[string]int64{test.own: 1}) {
				t.Errorf("own: %v, want %q", got, test.own)
			}
			if got := stacks(HideRuntime(w)); !maps.Equal(got, map[string]int64{test.hidden: 1}) {
				t.Errorf("hidden: %v, want %q", got, test.hidden)
			}
		})
	}
}

// Whatever is folded away, nothing is lost: sums, threads' sums and exact times stay.
func TestOwnKeepsSums(t *testing.T) {
	for seed := range uint64(50) {
		w := profiletest.Random(rand.New(rand.NewPCG(seed, 1)))
		for name, folded := range map[string]*profile.Window{"own": Own(w), "hidden": HideRuntime(w)} {
			if folded.N() != w.N() || Whole(folded) != Whole(w) || folded.Exact != w.Exact {
				t.Fatalf("seed %d, %s: %+v and %+v became %+v and %+v", seed, name, Whole(w), w.Exact, Whole(folded), folded.Exact)
			}
			if len(Threads(folded)) != len(Threads(w)) {
				t.Fatalf("seed %d, %s: %d threads became %d", seed, name, len(Threads(w)), len(Threads(folded)))
			}
			for _, l := range folded.Names {
				for _, f := range l {
					if name == "own" && !f.Class.Own() && !strings.HasPrefix(f.Function, "[") {
						t.Fatalf("seed %d: %q of class %s is nobody's own", seed, f.Function, f.Class)
					}
				}
			}
		}
	}
}

func TestLanguages(t *testing.T) {
	w := classed("so:start app:main lib:json so:memcpy k:fault", "so:start k:read")
	set, err := Languages("python")
	if err != nil {
		t.Fatal(err)
	}
	got, unmatched := Selection{Kinds: set}.Apply(w)
	if want := (map[string]int64{"main;json": 1}); !maps.Equal(stacks(got), want) || unmatched != (Unmatched{}) || got.Exact.CPU != 0 {
		t.Errorf("%v, want %v; unmatched %+v, exact %v", stacks(got), want, unmatched, got.Exact)
	}
	for _, names := range []string{"native,kernel", "Kernel, c++"} {
		if set, err = Languages(names); err != nil {
			t.Fatal(err)
		}
		got, _ = Selection{Kinds: set}.Apply(w)
		if want := (map[string]int64{"start;memcpy;fault": 1, "start;read": 1}); !maps.Equal(stacks(got), want) {
			t.Errorf("%s: %v, want %v", names, stacks(got), want)
		}
	}
	if set, err = Languages("java"); err != nil {
		t.Fatal(err)
	}
	if got, unmatched = (Selection{Kinds: set}).Apply(w); !unmatched.Kinds || got.Rows.Len() != 0 {
		t.Errorf("java: %v, unmatched %+v", stacks(got), unmatched)
	}
	if _, err = Languages("python,cobol"); err == nil || !strings.Contains(err.Error(), `no language "cobol": want some of python, java`) {
		t.Errorf("cobol: %v", err)
	}
}

// Every kind but the unknown one belongs to one language, so that a kind added
// later is not forgotten here.
func TestEveryKindHasALanguage(t *testing.T) {
	for k := profile.KindUnknown + 1; !strings.HasPrefix(k.String(), "other ("); k++ {
		n := 0
		for _, l := range languages() {
			if l.kinds.Has(k) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("kind %s belongs to %d languages", k, n)
		}
	}
}

// TestOwnGrove folds random windows as groves, and as Own does.
func TestOwnGrove(t *testing.T) {
	for seed := range uint64(200) {
		g := profiletest.Grove(profiletest.Random(rand.New(rand.NewPCG(seed, 1))))
		want, err := profile.NewTree(profile.TreeOptions{}, Own(profiletest.OpenGrove(g)))
		if err != nil {
			t.Fatal(err)
		}
		sameNodes(t, seed, OwnGrove(g).Tree().Root, want.Root)
	}
}

func sameNodes(t *testing.T, seed uint64, got, want *profile.Node) {
	t.Helper()
	if got.Frame.Key() != want.Frame.Key() || got.Frame.Class != want.Frame.Class || got.Self[0] != want.Self[0] || got.Total[0] != want.Total[0] ||
		len(got.Children) != len(want.Children) {
		t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
	}
	for i := range got.Children {
		sameNodes(t, seed, got.Children[i], want.Children[i])
	}
}
