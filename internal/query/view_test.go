package query

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/profile/whose"
)

// uuids is two instances that have a library make numbers: one asks it for few,
// the other for many; and a thread of the runtime.
func uuids() Asker {
	return Asker{Tenant: "x", Store: &shelf{windows: []written{
		{profile.Labels{"service": "ids", "instance": "a"}, head(0), "", map[string]int64{
			"lib:loop;app:serve;app:few;run:uuid;run:random": 20, "lib:loop;app:serve;app:few;run:uuid;run:uuid": 5, "lib:loop;app:serve;app:few": 5,
			"lib:loop;app:serve;run:write;k:write": 20, "run:collect": 10}},
		{profile.Labels{"service": "ids", "instance": "bb"}, head(0), "", map[string]int64{
			"lib:loop;app:serve;app:many;run:uuid;run:random;k:random": 60, "lib:loop;run:uuid": 4, "run:uuid": 1, "lib:loop;run:wait;k:wait": 5}},
	}}}
}

func TestView(t *testing.T) {
	rules, err := whose.Parse("library function ^app:(few|many)$")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		view View
		want string // self and total of 130
	}{
		"all":           {View{}, "k:random 60/60 run:random 20/80 k:write 20/20 run:uuid 10/90 run:collect 10/10 app:few 5/30 k:wait 5/5 lib:loop 0/119 app:serve 0/110 app:many 0/60 run:write 0/20 run:wait 0/5"},
		"own":           {View{Fold: FoldOwn}, "app:many 60/60 app:few 30/30 app:serve 20/110 [runtime] 20/20"},
		"hidden":        {View{Fold: FoldHideRuntime}, "app:many 60/60 app:few 30/30 app:serve 20/110 [runtime] 11/11 lib:loop 9/119"},
		"rules":         {View{Fold: FoldOwn, Rules: rules}, "app:serve 110/110 [runtime] 20/20"},
		"callers":       {View{Callers: "run:uuid"}, "app:many 60/60 app:few 25/25 lib:loop 4/89 [no frames] 1/1 app:serve 0/85"},
		"own callers":   {View{Callers: "run:random", Fold: FoldOwn}, "app:many 60/60 app:few 20/20 app:serve 0/80"},
		"who waits":     {View{Callers: "run:wait", Fold: FoldOwn}, "[library] 5/5"},
		"callers of no": {View{Callers: "nobody"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := uuids().Top(t.Context(), about(t, `{service="ids"}`), test.view, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range top.Functions {
				got = append(got, fmt.Sprintf("%s %d/%d", f.Frame.Function, f.Self.N, f.Total.N))
			}
			if text := strings.Join(got, " "); text != test.want || top.N != 130 {
				t.Errorf("of %d: %q, want %q", top.N, text, test.want)
			}
		})
	}
}

// What is folded when a store is asked is what is folded in its answer, and no
// time is lost on the way.
func TestViewIsThatOfFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 11))
	names := strings.Fields("app:a app:b any lib:c lib:d run:e run:f k:g")
	for range 100 {
		stacks := map[string]int64{}
		for range 1 + r.IntN(12) {
			var stack []string
			for range 1 + r.IntN(6) {
				stack = append(stack, names[r.IntN(len(names))])
			}
			stacks[strings.Join(stack, ";")] = 1 + r.Int64N(9)
		}
		asker := Asker{Tenant: "x", Store: &shelf{windows: []written{{profile.Labels{"service": "s"}, head(0), "", stacks}}}}
		grove, _, err := asker.Merge(t.Context(), about(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		window := profiletest.OpenGrove(grove)
		for fold, apply := range map[Fold]func(*profile.Window) *profile.Window{FoldOwn: selection.Own, FoldHideRuntime: selection.HideRuntime} {
			tree, err := profile.NewTree(profile.TreeOptions{}, apply(whose.New(nil).Window(window)))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string][2]profile.Sum{}
			for _, f := range tree.Functions() {
				want[f.Frame.Function] = [2]profile.Sum{f.Self[0], f.Total[0]}
			}
			top, err := asker.Top(t.Context(), about(t, ""), View{Fold: fold}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(top.Functions) != len(want) {
				t.Fatalf("%s of %v: %d functions, want %d", fold, stacks, len(top.Functions), len(want))
			}
			var n int64
			for _, f := range top.Functions {
				n += f.Self.N
				if w := want[f.Frame.Function]; f.Self.N != w[0].N || f.Total.Value != w[1].Value {
					t.Fatalf("%s of %v: %s has %d and %d, want %+v", fold, stacks, f.Frame.Function, f.Self.N, f.Total.Value, w)
				}
			}
			if n != top.N {
				t.Fatalf("%s of %v: %d of %d samples are charged", fold, stacks, n, top.N)
			}
		}
	}
}
