package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
)

// build is one build of a program: where its compiler was, what it made of each
// chain of calls, and where it put that.
type build struct {
	*rand.Rand
	number  int
	offsets map[string]uint64
}

func newBuild(seed uint64, number int) *build {
	return &build{rand.New(rand.NewPCG(seed, uint64(number))), number, map[string]uint64{}}
}

// program is the functions of a program, as all of its builds have them: some
// share a name, and differ in their file or in what runs them.
func program(r *rand.Rand) (functions []profile.FrameKey) {
	seen := map[profile.FrameKey]bool{}
	for len(functions) < 12 {
		f := profile.FrameKey{Function: fmt.Sprintf("f%d", r.IntN(6)), Kind: profile.KindNative, FileBase: []string{"a.c", "b.c", ""}[r.IntN(3)]}
		if r.IntN(4) == 0 {
			f.Kind, f.FileBase = profile.KindPython, "main.py"
		}
		if !seen[f] {
			seen[f] = true
			functions = append(functions, f)
		}
	}
	return functions
}

// frame is a function as this build names it.
func (b *build) frame(f profile.FrameKey) profile.Frame {
	frame := profile.Frame{Function: f.Function, Kind: f.Kind, Line: 1 + b.IntN(500), StartLine: b.number, Mapping: fmt.Sprintf("/opt/v%d/shop", b.number)}
	if f.FileBase != "" {
		frame.File = fmt.Sprintf("/build/%d/src/%s", b.number, f.FileBase)
	}
	return frame
}

// stack is a chain of calls as this build makes it, leaf first: some calls are
// inlined into their callers, each build decides which.
func (b *build) stack(w *profile.Builder, calls []profile.FrameKey) profile.StackID {
	var stack []profile.LocationID
	for i := 0; i < len(calls); {
		chain := []profile.Frame{b.frame(calls[i])}
		if calls[i].Kind != profile.KindNative {
			stack = append(stack, w.Named(chain[0]))
			i++
			continue
		}
		for i++; i < len(calls) && calls[i].Kind == profile.KindNative && b.IntN(2) == 0; i++ {
			chain[len(chain)-1].Inlined = true
			chain = append(chain, b.frame(calls[i]))
		}
		stack = append(stack, w.Location(profile.Location{Kind: profile.KindNative, BuildID: fmt.Sprint("build", b.number), Offset: b.offset(chain)}, chain...))
	}
	return w.Stack(stack, profile.EndComplete)
}

// offset is where code lies, which is nowhere else.
func (b *build) offset(chain []profile.Frame) uint64 {
	key := fmt.Sprint(chain)
	if b.offsets[key] == 0 {
		b.offsets[key] = uint64(len(b.offsets)+1)<<12 + b.Uint64N(1<<12)
	}
	return b.offsets[key]
}

// usage is what functions used: samples and value, of themselves and in all.
type usage map[profile.FrameKey][4]int64

func (u usage) add(calls []profile.FrameKey, n, value int64) {
	counted := map[profile.FrameKey]bool{}
	for i, f := range calls {
		if f.FileBase == "" {
			f.FileBase = "shop" // of code of no known file its binary counts
		}
		a := u[f]
		if i == 0 {
			a[0], a[1] = a[0]+n, a[1]+value
		}
		if !counted[f] {
			counted[f] = true
			a[2], a[3] = a[2]+n, a[3]+value
		}
		u[f] = a
	}
}

// TestBuildsMeet has random programs sampled in two builds, whose addresses,
// identities, folders, lines and inlined calls differ. Of all together each
// function has what it has in both, and none is there twice.
func TestBuildsMeet(t *testing.T) {
	for seed := range uint64(20) {
		kept, err := disk.Open(disk.Options{Dir: filepath.Join(t.TempDir(), "store"), Reserve: 1})
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]store.Store{"memory": mem.New(seed), "disk": kept} {
			want := usage{}
			r := rand.New(rand.NewPCG(seed, 0))
			functions := program(r)
			for number := 1; number <= 2; number++ {
				w := sampled(r, newBuild(seed, number), functions, want)
				if err := s.Put(t.Context(), "x", store.Raw, storetest.Batch(profile.Run{1}, w)); err != nil {
					t.Fatal(err)
				}
			}
			if m, ok := s.(*mem.Store); ok {
				m.Settle()
			}
			sameUsage(t, fmt.Sprintf("%s, seed %d", name, seed), query.Asker{Store: s, Tenant: "x"}, want)
		}
		if err := kept.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// sampled is a window of a build, whose samples are added to what is used.
func sampled(r *rand.Rand, b *build, functions []profile.FrameKey, used usage) *profile.Window {
	w := profile.NewBuilder(profile.Head{Task: "t", Target: profile.Labels{"service": "shop", "instance": fmt.Sprint(b.number)}, Start: noon,
		Duration: 10 * time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
	for range 40 {
		calls := make([]profile.FrameKey, 1+r.IntN(7))
		for i := range calls {
			calls[i] = functions[r.IntN(len(functions))]
		}
		n := 1 + r.Int64N(9)
		w.Add(profile.Row{Stack: b.stack(w, calls), N: n, Values: []int64{10 * n}, Squares: []float64{float64(100 * n)}})
		used.add(calls, n, 10*n)
	}
	return w.Window()
}

// sameUsage asks for functions, and for all of it as one profile.
func sameUsage(t *testing.T, name string, a query.Asker, want usage) {
	t.Helper()
	about := query.Selection{Kinds: []string{"cpu"}, From: noon, To: noon.Add(time.Minute)}
	top, err := a.Top(t.Context(), about, query.View{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := usage{}
	for _, f := range top.Functions {
		if _, twice := got[f.Frame.Key()]; twice {
			t.Errorf("%s: %+v is there twice", name, f.Frame)
		}
		got[f.Frame.Key()] = [4]int64{f.Self.N, f.Self.Value, f.Total.N, f.Total.Value}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: functions are\n%s, want\n%s", name, got, want)
	}
	merged, _, err := a.Merge(t.Context(), about)
	if err != nil {
		t.Fatal(err)
	}
	clear(got)
	for _, f := range merged.Tree().Functions() {
		got[f.Frame.Key()] = [4]int64{f.Self[0].N, f.Self[0].Value, f.Total[0].N, f.Total[0].Value}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: of one profile functions are\n%s, want\n%s", name, got, want)
	}
}

func (u usage) String() string {
	var b strings.Builder
	for f, a := range u {
		fmt.Fprintf(&b, "%+v %v\n", f, a)
	}
	return b.String()
}
