package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// The shape of windows is that of the study of servers: as many rows, as deep,
// of as many functions.
const (
	services     = 20 // their sizes are Zipf's
	windowsOf    = 50 // different ones of a service, sent again and again
	rowsOf       = 801
	functions    = 4000   // of a service; a window has about 2,200 of them
	stacksOf     = 20_000 // of a service
	windowLength = 10 * time.Second
	kind         = "cpu"
	task         = "bench"
)

// service is many instances of one program.
type service struct {
	name   string
	builds []*build
}

// build is one version of a program: windows of it have stacks of their own.
type build struct {
	shapes  []*shape
	number  map[profile.Hash]int // of stacks that are in a window
	hashes  []profile.Hash       // of these
	explain wire.Explain         // any of its stacks
}

// shape is a window, but for when and of whom it is.
type shape struct {
	sealed *atysv1.Spooled
	stacks []int // by the build's numbers
	packed packed
}

// shares is how many of so many instances are of each service.
func shares(instances int) []int {
	var whole float64
	for i := range services {
		whole += 1 / float64(i+1)
	}
	all, left := make([]int, services), instances
	for i := range all {
		all[i] = min(left, int(math.Round(float64(instances)/whole/float64(i+1))))
		left -= all[i]
	}
	all[0] += left
	return all
}

// newServices makes all of them, on all processors.
func newServices() ([]*service, error) {
	all, errs := make([]*service, services), make([]error, services)
	var making sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for i := range all {
		making.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			all[i], errs[i] = newService(i)
		})
	}
	making.Wait()
	return all, errors.Join(errs...)
}

// newService makes a service's windows. The first service has two builds: the
// second takes the place of the first while instances run.
func newService(number int) (*service, error) {
	s := &service{name: fmt.Sprintf("service-%02d", number)}
	builds := 1
	if number == 0 {
		builds = 2
	}
	for i := range builds {
		b, err := newBuild(rand.New(rand.NewPCG(uint64(number), uint64(i))), fmt.Sprintf("%016x%02x%02x", 0xacce551b1e, number, i))
		if err != nil {
			return nil, err
		}
		s.builds = append(s.builds, b)
	}
	return s, nil
}

func newBuild(r *rand.Rand, id string) (*build, error) {
	b := &build{number: map[profile.Hash]int{}}
	tree := newTree(r)
	for range windowsOf {
		if err := b.add(tree.window(r, id, ofRows)); err != nil {
			return nil, err
		}
	}
	all, err := wire.Learn(wire.Seal(tree.whole(id), profile.Run{}).GetDictionary())
	if err != nil {
		return nil, err
	}
	b.explain = wire.In(all)
	return b, nil
}

func (b *build) add(w *profile.Window) error {
	s := &shape{sealed: wire.Seal(w, profile.Run{})}
	hashes, err := wire.Hashes(s.sealed.GetStacks())
	if err != nil {
		return err
	}
	for _, h := range hashes {
		if _, ok := b.number[h]; !ok {
			b.number[h] = len(b.number)
			b.hashes = append(b.hashes, h)
		}
		s.stacks = append(s.stacks, b.number[h])
	}
	b.shapes = append(b.shapes, s)
	s.packed, err = pack(s.sealed)
	return err
}

// explaining packs what explains some stacks.
func (b *build) explaining(stacks []int) []byte {
	hashes := make([]profile.Hash, len(stacks))
	for i, n := range stacks {
		hashes[i] = b.hashes[n]
	}
	batch := wire.NewBatch(func(profile.Hash) bool { return false })
	batch.Join(&atysv1.PushRequest{}, hashes, b.explain)
	return packDictionary(batch.Request().GetDictionary())
}

// tree is the calls of a program: stacks share their beginnings.
type tree struct {
	calls  []treeCall // a caller before whom it calls; the first is the root
	leaves []int
}

type treeCall struct{ caller, function, depth int }

func newTree(r *rand.Rand) *tree {
	t := &tree{calls: []treeCall{{-1, 0, 1}}}
	for len(t.leaves) < stacksOf {
		at := r.IntN(len(t.calls))
		for t.calls[at].depth > 20 && r.IntN(4) > 0 {
			at = t.calls[at].caller
		}
		for want := 20 + r.IntN(15); t.calls[at].depth < want; at = len(t.calls) - 1 {
			function := int(math.Pow(r.Float64(), 2) * functions)
			t.calls = append(t.calls, treeCall{at, function, t.calls[at].depth + 1})
		}
		t.leaves = append(t.leaves, at)
	}
	return t
}

// whole is a window with all stacks of the program.
func (t *tree) whole(build string) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(1)}})
	for _, leaf := range t.leaves {
		b.Add(profile.Row{Stack: b.Stack(t.stack(b, build, leaf), profile.EndComplete), N: 1, Values: []int64{1}})
	}
	return b.Window()
}

// ofRows ends a window at so many rows, and ofSamples at so many samples.
func ofRows(rows, _ int) bool     { return rows >= rowsOf }
func ofSamples(most int) fullness { return func(_, samples int) bool { return samples >= most } }

type fullness func(rows, samples int) bool

// window draws samples until it is full: few stacks are hot, each window has some
// favourites of its own, and weights of single samples lie between half a period
// and one and a half.
func (t *tree) window(r *rand.Rand, build string, full fullness) *profile.Window {
	const period = 52631579
	b := profile.NewBuilder(profile.Head{Task: task, Start: time.Unix(0, 0), Duration: windowLength, Design: profile.DesignRandomised,
		Target: profile.Labels{store.ServiceLabel: "-"}, Types: []profile.ValueType{profile.CPUTime(period)}})
	zipf, swap := rand.NewZipf(r, 1.05, 3, stacksOf-1), r.Perm(stacksOf)
	counts := map[int]int64{}
	var order []int // of a map there is none
	for samples := 0; !full(len(order), samples); samples++ {
		at := int(zipf.Uint64())
		if r.IntN(4) == 0 {
			at = swap[at]
		}
		if counts[at]++; counts[at] == 1 {
			order = append(order, at)
		}
	}
	var whole int64
	for _, at := range order {
		row := profile.Row{Stack: b.Stack(t.stack(b, build, t.leaves[at]), profile.EndComplete), N: counts[at], Values: []int64{0}, Squares: []float64{0}}
		for range row.N {
			weight := (0.5 + r.Float64()) * period
			row.Values[0] += int64(weight)
			row.Squares[0] += weight * weight
		}
		whole += row.Values[0]
		b.Add(row)
	}
	w := b.Window()
	w.Exact = profile.Exact{CPU: time.Duration(whole), Source: "schedstat"}
	return w
}

// stack gives a call and its callers, leaf first.
func (t *tree) stack(b *profile.Builder, build string, leaf int) (locations []profile.LocationID) {
	for at := leaf; at >= 0; at = t.calls[at].caller {
		f := t.calls[at].function
		l := profile.Location{Kind: profile.KindNative, BuildID: build, Offset: uint64(f) * 64}
		locations = append(locations, b.Location(l, profile.Frame{Function: fmt.Sprintf("github.com/acme/shop/internal/package%02d.(*Handler).function%04d", f%50, f),
			File: fmt.Sprintf("/src/package%02d/file.go", f%50), Line: f, Kind: profile.KindNative}))
	}
	return locations
}
