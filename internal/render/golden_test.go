package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// small is a tree a person can check by hand.
func small() *profile.Window {
	b := profile.NewBuilder(testHead(1000))
	worker := b.Thread(profile.Thread{PID: 7, TID: 8, Process: "server", Name: "worker-1"})
	other := b.Thread(profile.Thread{PID: 7, TID: 9, Process: "server", Name: "worker-2"})
	frame := func(name string, kind profile.Kind, file string, line int) profile.LocationID {
		class := profile.ClassApplication
		if kind == profile.KindKernel {
			class = profile.ClassKernel
		}
		return b.Named(profile.Frame{Function: name, Kind: kind, File: file, Line: line, Class: class, Mapping: "/usr/bin/server"})
	}
	start := frame("_start", profile.KindNative, "", 0)
	serve := frame("server::Serve(int, std::vector<std::string> const&)", profile.KindNative, "serve.cc", 41)
	parse := frame("parse", profile.KindPython, "app.py", 7)
	read := frame("vfs_read", profile.KindKernel, "", 0)
	hash := b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ab", Offset: 64},
		profile.Frame{Function: "mix", Kind: profile.KindNative, File: "hash.h", Line: 9, Inlined: true},
		profile.Frame{Function: "hash", Kind: profile.KindNative, File: "hash.c", Line: 30})
	add := func(thread profile.ThreadID, n int64, leafFirst ...profile.LocationID) {
		b.Add(profile.Row{Stack: b.Stack(leafFirst, profile.EndComplete), Thread: thread, N: n, Values: []int64{n * 1_000_000}, Squares: []float64{float64(n) * 1.08e12}})
	}
	add(worker, 400, hash, serve, start)
	add(worker, 250, read, serve, start)
	add(worker, 44, serve, start)
	add(other, 300, parse, serve, start)
	add(other, 6, serve, serve, start)
	return b.Window()
}

// smallAfter is small with hash halved and reads doubled.
func smallAfter() *profile.Window {
	w := small()
	factors := []int64{50, 200, 100, 100, 150}
	for i, f := range factors {
		row := w.Rows.At(i)
		w.Rows.N[i] = row.N * f / 100
		row.Values[0] = row.Values[0] * f / 100
		row.Squares[0] = row.Squares[0] * float64(f) / 100
	}
	return w
}

func TestGolden(t *testing.T) {
	one := treeOf(t, profile.TreeOptions{}, small())
	threads := treeOf(t, profile.TreeOptions{Process: true, Thread: true}, small())
	two := treeOf(t, profile.TreeOptions{}, small(), smallAfter())
	empty := treeOf(t, profile.TreeOptions{}, profile.NewBuilder(testHead(0)).Window())
	tests := []struct {
		file   string
		render func(io.Writer, *profile.Tree, Options) error
		tree   *profile.Tree
		o      Options
	}{
		{"icicle.svg", SVG, one, Options{Title: "a <small> profile"}},
		{"threads-flame.svg", SVG, threads, Options{Flame: true, Lead: 2, ColorBy: ByPackage, Width: 600}},
		{"compare.svg", SVG, two, Options{}},
		{"pruned.svg", SVG, one, Options{MinWidth: 300}},
		{"empty.svg", SVG, empty, Options{}},
		{"icicle.txt", Terminal, one, Options{NoColor: true, Width: 72}},
		{"flame-256.txt", Terminal, one, Options{Flame: true, Width: 60, ColorBy: ByClass}},
		{"icicle-rgb.txt", Terminal, threads, Options{RGB: true, Lead: 2, Width: 60}},
		{"compare.txt", Terminal, two, Options{NoColor: true}},
		{"empty.txt", Terminal, empty, Options{NoColor: true}},
		{"top.json", TopJSON, one, Options{}},
		{"diff.json", TopJSON, two, Options{Limit: 2}},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			var out bytes.Buffer
			if err := test.render(&out, test.tree, test.o); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", test.file)
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), want) {
				t.Errorf("%s differs; see it with -update and git diff. Got:\n%s", golden, out.Bytes())
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	one := treeOf(t, profile.TreeOptions{}, small())
	three := treeOf(t, profile.TreeOptions{}, small(), small(), small())
	tests := []struct {
		name string
		tree *profile.Tree
		o    Options
		want string
	}{
		{"no tree", nil, Options{}, "one column, or two"},
		{"no root", &profile.Tree{}, Options{}, "one column, or two"},
		{"three columns", three, Options{}, "one column, or two"},
		{"colour", one, Options{ColorBy: "mood"}, `colour by "mood"`},
	}
	for _, test := range tests {
		for name, render := range renderings() {
			if err := render(io.Discard, test.tree, test.o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s of %s: error %v, want %q", name, test.name, err, test.want)
			}
		}
	}
}

// failing is a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteErrorsAreReported(t *testing.T) {
	for name, render := range renderings() {
		if err := render(failing{}, treeOf(t, profile.TreeOptions{}, small()), Options{}); err == nil {
			t.Errorf("%s: no error from a writer that fails", name)
		}
	}
}

func TestSizeOfLargeTrees(t *testing.T) {
	tree := large(t, 100_000)
	for name, limit := range map[string]int{"html": 2 << 20, "svg": 4 << 20} {
		var out bytes.Buffer
		if err := renderings()[name](&out, tree, Options{Lead: 2}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", name, out.Len())
		if out.Len() > limit {
			t.Errorf("%s of 100,000 nodes takes %d bytes, more than %d", name, out.Len(), limit)
		}
	}
}

// TestSizeWithManyNames is the file size where most functions have a name of
// their own, long as C++ has them: names are what does not compress.
func TestSizeWithManyNames(t *testing.T) {
	tree := large(t, 100_000)
	i := 0
	tree.Walk(func(n *profile.Node, depth int) {
		if i++; depth > 0 && i%5 == 0 {
			n.Frame.Function = strings.Repeat("ns", 1+i%7) + "::" + n.Frame.Function + "_" + strings.Repeat(string(rune('a'+i%26)), i%9) + jsonNumber(float64(i)*math.Phi)
		}
	})
	var out bytes.Buffer
	if err := HTML(&out, tree, Options{Lead: 2}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", out.Len())
	if out.Len() > 2<<20 {
		t.Errorf("the page takes %d bytes, more than 2 MB", out.Len())
	}
}

func jsonNumber(f float64) string {
	text, err := json.Marshal(f)
	if err != nil {
		return ""
	}
	return string(text)
}

func TestValuesBelowZeroAreSaid(t *testing.T) {
	difference := small()
	for i, v := range difference.Rows.Values {
		difference.Rows.Values[i] = -v
	}
	d := newDocument(treeOf(t, profile.TreeOptions{}, difference))
	if d.clamped == 0 {
		t.Error("no node counted as below zero")
	}
}

func TestCensusHasNoInterval(t *testing.T) {
	w := small()
	w.Design = profile.DesignCensus
	var out bytes.Buffer
	if err := TopJSON(&out, treeOf(t, profile.TreeOptions{}, w), Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "interval") {
		t.Error("a census has an interval")
	}
}
