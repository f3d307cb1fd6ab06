package selection

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/folded"
	"atys.dev/atys/internal/profile/pprof"
	"atys.dev/atys/internal/profile/profiletest"
)

// stacks writes a window as folded stacks, sums of the first value.
func stacks(w *profile.Window) map[string]int64 {
	out := map[string]int64{}
	var frames []profile.Frame
	for _, r := range w.Rows.All() {
		frames = append(frames[:0], endFrames(w.Stacks[r.Stack].End)...)
		out[joined(w.AppendStack(frames, r.Stack))] += r.Values[0]
	}
	return out
}

func joined(frames []profile.Frame) string {
	names := make([]string, len(frames))
	for i, f := range frames {
		names[i] = f.Function
	}
	return strings.Join(names, ";")
}

func parse(t *testing.T, text string) *profile.Window {
	t.Helper()
	w, err := folded.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func expression(text string) *regexp.Regexp {
	if text == "" {
		return nil
	}
	return regexp.MustCompile(text)
}

func TestApply(t *testing.T) {
	const text = "main;serve;parse 3\nmain;serve;format;parse 2\nmain;idle 5\nidle 1\n"
	for name, test := range map[string]struct {
		focus, ignore, show, hide string
		want                      string
		unmatched                 Unmatched
	}{
		"nothing asked":           {want: text},
		"focus":                   {focus: "parse", want: "main;serve;parse 3\nmain;serve;format;parse 2\n"},
		"focus is not anchored":   {focus: "orma", want: "main;serve;format;parse 2\n"},
		"focus nothing":           {focus: "x", want: "", unmatched: Unmatched{Focus: true}},
		"ignore":                  {ignore: "^idle$", want: "main;serve;parse 3\nmain;serve;format;parse 2\n"},
		"ignore wins":             {focus: "parse", ignore: "format", want: "main;serve;parse 3\n"},
		"ignore nothing":          {ignore: "x", want: text, unmatched: Unmatched{Ignore: true}},
		"show":                    {show: "^(serve|idle)$", want: "serve 5\nidle 6\n"},
		"show drops empty stacks": {show: "parse", want: "parse 5\n"},
		"show nothing":            {show: "x", want: "", unmatched: Unmatched{Show: true}},
		"hide":                    {hide: "main|format", want: "serve;parse 5\nidle 6\n"},
		"hide drops empty stacks": {hide: "idle|main", want: "serve;parse 3\nserve;format;parse 2\n"},
		"hide nothing":            {hide: "x", want: text, unmatched: Unmatched{Hide: true}},
		"focus sees what is hidden": {focus: "format", hide: "format",
			want: "main;serve;parse 2\n"},
		"hide of what is shown": {show: "serve|parse", hide: "parse", want: "serve 5\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Selection{Focus: expression(test.focus), Ignore: expression(test.ignore), Show: expression(test.show), Hide: expression(test.hide)}
			got, unmatched := s.Apply(parse(t, text))
			if unmatched != test.unmatched {
				t.Errorf("unmatched %+v, want %+v", unmatched, test.unmatched)
			}
			want := map[string]int64{}
			if test.want != "" {
				want = stacks(parse(t, test.want))
			}
			if !maps.Equal(stacks(got), want) {
				t.Errorf("got %v, want %v", stacks(got), want)
			}
		})
	}
}

// What stands for missing frames is focused on and hidden like a frame.
func TestTruncatedStacks(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}, Exact: profile.Exact{CPU: 9}})
	leaf := b.Named(profile.Frame{Function: "leaf"})
	for end, n := range map[profile.End]int64{profile.EndTooDeep: 1, profile.EndComplete: 2, profile.EndNoUnwind: 4} {
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, end), N: n, Values: []int64{n}})
	}
	b.Add(profile.Row{Stack: b.Stack(nil, profile.EndCorrupt), N: 8, Values: []int64{8}})
	b.Add(profile.Row{Stack: b.Stack(nil, profile.EndNoUser), N: 16, Values: []int64{16}})
	w := b.Window()
	for name, test := range map[string]struct {
		s    Selection
		want map[string]int64
	}{
		"focus":  {Selection{Focus: expression("too deep")}, map[string]int64{"[too deep];leaf": 1}},
		"ignore": {Selection{Ignore: expression(`^\[`)}, map[string]int64{"leaf": 2}},
		"hide":   {Selection{Hide: expression(`^\[`)}, map[string]int64{"leaf": 7}},
		"show":   {Selection{Show: expression(`leaf`)}, map[string]int64{"leaf": 7}},
		"marks":  {Selection{Show: expression(`^\[`)}, map[string]int64{"[too deep]": 1, "[no unwind information]": 4, "[corrupt stack]": 8}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := test.s.Apply(w)
			if !maps.Equal(stacks(got), test.want) {
				t.Errorf("got %v, want %v", stacks(got), test.want)
			}
			if got.Exact != (profile.Exact{}) {
				t.Error("a selection has the exact time of the whole")
			}
		})
	}
	if w.Exact.CPU != 9 {
		t.Error("the window given was changed")
	}
}

// pprof itself is the oracle: FilterSamplesByName is what its -focus, -ignore,
// -hide and -show call.
func TestApplyAsPprofDoes(t *testing.T) {
	expressions := []string{"", "", "main", "runtime", "^main\\.", "shop", "\\.go$", "a", "nothing like it", "names|inner", "Hash", "java", ":[0-9]"}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"go-cpu.pb.gz", "go-heap.pb.gz", "java.cpu", "cppbench.cpu"} {
		data := corpus.Read("pprof/" + name)
		whole, err := pprof.Read(strings.NewReader(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			var e [4]string
			for i := range e {
				e[i] = expressions[rng.IntN(len(expressions))]
			}
			p := oracle(t, data)
			p.FilterSamplesByName(expression(e[0]), expression(e[1]), expression(e[3]), expression(e[2]))
			got, _ := Selection{Focus: expression(e[0]), Ignore: expression(e[1]), Show: expression(e[2]), Hide: expression(e[3])}.Apply(whole)
			if want := pprofStacks(p, whole.Types[0].Kind); !maps.Equal(stacks(got), want) {
				t.Fatalf("%s: focus %q ignore %q show %q hide %q:\ngot  %v\nwant %v", name, e[0], e[1], e[2], e[3], stacks(got), want)
			}
		}
	}
}

// oracle parses a profile and names what has no names as our reader does: the
// reader is tested elsewhere.
func oracle(t *testing.T, data []byte) *gp.Profile {
	t.Helper()
	p, err := gp.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.RemoveUninteresting(); err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Location {
		if len(l.Line) == 0 {
			l.Line = []gp.Line{{Function: &gp.Function{Name: unnamed(l)}}}
		}
	}
	return p
}

func unnamed(l *gp.Location) string {
	if l.Mapping == nil {
		return fmt.Sprintf("0x%x", l.Address)
	}
	return profile.Unnamed(profile.KindNative, l.Mapping.File, l.Address-l.Mapping.Start+l.Mapping.Offset).Function
}

func pprofStacks(p *gp.Profile, kind string) map[string]int64 {
	column := slices.IndexFunc(p.SampleType, func(t *gp.ValueType) bool { return t.Type == kind })
	out := map[string]int64{}
	for _, s := range p.Sample {
		var names []string
		for _, l := range slices.Backward(s.Location) {
			for _, line := range slices.Backward(l.Line) {
				names = append(names, line.Function.Name)
			}
		}
		out[strings.Join(names, ";")] += s.Value[column]
	}
	return out
}

// What --focus keeps and what --ignore keeps with the same expression are the whole.
func FuzzApply(f *testing.F) {
	f.Add(uint64(1), "main")
	f.Add(uint64(2), "^[a-m]")
	f.Add(uint64(3), ".")
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		e, err := regexp.Compile(text)
		if err != nil || len(text) > 50 {
			t.Skip()
		}
		w := profiletest.Random(rand.New(rand.NewPCG(seed, 0)))
		focused, _ := Selection{Focus: e}.Apply(w)
		ignored, _ := Selection{Ignore: e}.Apply(w)
		both := stacks(focused)
		for stack, v := range stacks(ignored) {
			both[stack] += v
		}
		all := stacks(w)
		delete(all, "") // stacks without frames match nothing and are left out, as pprof does
		if !maps.Equal(both, all) {
			t.Errorf("focus and ignore of %q make %v, the whole is %v", text, both, all)
		}
		hidden, _ := Selection{Hide: e}.Apply(w)
		for _, stack := range hidden.Stacks {
			frames := endFrames(stack.End)
			for _, l := range stack.Locations {
				frames = append(frames, hidden.Frames(l)...)
			}
			if i := slices.IndexFunc(frames, func(f profile.Frame) bool { return matches(e, f) }); i >= 0 {
				t.Errorf("hide %q left %+v", text, frames[i])
			}
		}
		if again, _ := (Selection{Focus: e}).Apply(focused); !maps.Equal(stacks(again), stacks(focused)) {
			t.Errorf("focus %q on what it kept changes it", text)
		}
	})
}
