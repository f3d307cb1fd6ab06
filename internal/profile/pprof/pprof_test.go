package pprof_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/pprof"
	"atys.dev/atys/internal/profile/profiletest"
)

func write(t testing.TB, w *profile.Window) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := pprof.Write(&file, w); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func read(t testing.TB, data []byte) *profile.Window {
	t.Helper()
	w, err := pprof.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func random(seed uint64) *profile.Window { return profiletest.Random(rand.New(rand.NewPCG(seed, 1))) }

func TestRoundTripKeepsAll(t *testing.T) {
	for seed := range uint64(100) {
		want := random(seed)
		if diff := profiletest.Diff(want, read(t, write(t, want))); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}

// TestFarewell keeps the farewell, and reads it in files of versions that had it as a
// comment. The temporality that those did not name is that of the kind.
func TestFarewell(t *testing.T) {
	w := random(1)
	w.Farewell = true
	if diff := profiletest.Diff(w, read(t, write(t, w))); diff != "" {
		t.Error(diff)
	}
	old := *w
	old.Farewell, old.Comments = false, w.OldComments()
	old.Types = slices.Clone(w.Types)
	old.Types[1].Kind = "inuse_space"
	data := write(t, &old)
	p, err := gp.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range p.Comments {
		p.Comments[i] = strings.Replace(c, " temporality=delta", "", 1)
	}
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	got := read(t, file.Bytes())
	if !got.Farewell || len(got.Comments) != len(w.Comments) || got.Types[1].Temporality != profile.Level || got.Types[0].Temporality != profile.Delta {
		t.Errorf("farewell %v, comments %q, types %+v", got.Farewell, got.Comments, got.Types)
	}
	if same := read(t, data); same.Types[1].Temporality != profile.Delta {
		t.Errorf("a delta of that kind is read as %+v", same.Types[1])
	}
}

// Another tool that reads and writes the file may drop and renumber what it
// likes: what it keeps must still mean what it meant.
func TestRoundTripThroughAnotherTool(t *testing.T) {
	for seed := range uint64(50) {
		want := random(seed)
		p, err := gp.ParseData(write(t, want))
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(p.Sample)
		var file bytes.Buffer
		if err := p.Compact().Write(&file); err != nil { // drops what is unused and numbers anew
			t.Fatal(err)
		}
		got := read(t, file.Bytes())
		if got.N() != want.N() || got.Total(0) != want.Total(0) || got.Total(1) != want.Total(1) || squares(got) != squares(want) {
			t.Fatalf("seed %d: sums differ", seed)
		}
		if got.Task != want.Task || got.Design != want.Design || got.Exact != want.Exact || !slices.Equal(got.Losses, want.Losses) {
			t.Fatalf("seed %d: head %+v, want %+v", seed, got.Head, want.Head)
		}
		if g, w := names(got), names(want); !slices.Equal(g, w) {
			t.Fatalf("seed %d: stacks differ:\n%q\n%q", seed, g, w)
		}
	}
}

func squares(w *profile.Window) (sum float64) {
	for _, r := range w.Rows.All() {
		sum += r.Squares[0]
	}
	return sum
}

// names lists stacks as any tool shows them, but for places nothing could name.
func names(w *profile.Window) (out []string) {
	for _, r := range w.Rows.All() {
		s := fmt.Sprint(r.N, w.Stacks[r.Stack].End)
		for _, f := range w.AppendStack(nil, r.Stack) {
			if !strings.Contains(f.Function, "+0x") {
				s += ";" + f.Function
			}
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func unzip(t testing.TB, data []byte) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if data, err = io.ReadAll(zip); err != nil {
		t.Fatal(err)
	}
	return data
}

// A pprof location's address is the file's offset, in a mapping from 0.
func TestWhatOtherToolsSee(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Start: time.Unix(1_700_000_000, 5), Duration: time.Second,
		Types: []profile.ValueType{profile.CPUTime(1000)}})
	f := profile.Frame{Function: "leaf", Linkage: "_Zleaf", File: "a.cc", Line: 7, StartLine: 5, Mapping: "/usr/bin/shop", Kind: profile.KindNative}
	in := f
	in.Function, in.Line, in.Inlined = "inlined", 8, true
	loc := b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ab12", Offset: 0x1234}, in, f)
	th := b.Thread(profile.Thread{PID: 7, TID: 8, Process: "shop", Name: "http-1"})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{loc}, profile.EndTooDeep), Thread: th, Slot: 4, N: 2, Values: []int64{2001}, Squares: []float64{2002001}})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{loc}, profile.EndComplete), N: 1, Values: []int64{1000}, Squares: []float64{1e6}})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{loc, loc}, profile.EndComplete), N: 1, Values: []int64{1000}, Squares: []float64{1e6}})
	b.Head().AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "ring full", N: 3})
	p, err := gp.ParseData(write(t, b.Window()))
	if err != nil {
		t.Fatal(err)
	}
	got := p.String()
	for _, want := range []string{
		"samples/count cpu/nanoseconds[dflt] squares/nanoseconds^2",
		"PeriodType: cpu nanoseconds\nPeriod: 1000\nTime: 2023-11-14 22:13:20.000000005 +0000 UTC\nDuration: 1",
		"2       2001    2002001: 1 \n                end:[too deep] process:[shop] thread:[http-1]\n                pid:[7] slot:[4] tid:[8]",
		"0x1234 M=1 inlined a.cc:8:0 s=5",
		"leaf a.cc:7:0 s=5",
		"1: 0x0/0x800000000000/0x0 /usr/bin/shop ab12 [FN][FL][LN][IN]",
		`Comment: atys.loss: reason=lost detail="ring full" n=3`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if p.Function[1].SystemName != "_Zleaf" {
		t.Errorf("functions %+v", p.Function[1])
	}
}

func TestSquaresBeyondAnInteger(t *testing.T) {
	tests := []struct {
		name    string
		squares []float64
		exact   bool
	}{
		{"whole", []float64{1, 3e15, 1 << 61}, true},
		{"fractions", []float64{0.25, 1.5, 1e6}, true},
		{"too large", []float64{1e30, 1e12}, false},
		{"negative, of a difference", []float64{-1e15, 4e15}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
			for i, sq := range test.squares {
				b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: fmt.Sprint(i)})}, 0), N: 1, Values: []int64{1}, Squares: []float64{sq}})
			}
			for i, r := range read(t, write(t, b.Window())).Rows.All() {
				want := test.squares[i]
				if r.Squares[0] != want && (test.exact || r.Squares[0] < want-1e30/(1<<60) || r.Squares[0] > want+1e30/(1<<60)) {
					t.Errorf("%g became %g", want, r.Squares[0])
				}
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	short := random(1)
	short.Rows = short.Rows.Only(0)
	for want, w := range map[string]*profile.Window{"no value types": {}, "rows have 1 values, the profile has 2 types": short} {
		if err := pprof.Write(io.Discard, w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}

// Files of other tools: the sums are those that pprof's own reader sees.
func TestForeignFiles(t *testing.T) {
	tests := []struct {
		file  string
		types string // the first is what one looks at by default
		stack string // root first, of some row
	}{
		{"go-cpu.pb.gz", "cpu/nanoseconds", "main.main;runtime/pprof.Do;main.main.func1;main.order;main.(*plain).price;main.inner"},
		{"go-heap.pb.gz", "inuse_space/bytes alloc_objects/count alloc_space/bytes inuse_objects/count", "main.names"},
		{"go-heap.txt", "inuse_space/bytes alloc_objects/count alloc_space/bytes inuse_objects/count", ""},
		{"go-goroutine.txt", "goroutine/count", ""},
		{"gobench.cpu", "cpu/nanoseconds", ""},
		{"cppbench.cpu", "cpu/nanoseconds", ""},
		{"cppbench.heap", "space/bytes objects/count", ""},
		{"cppbench.contention", "delay/nanoseconds contentions/count", ""},
		{"java.cpu", "cpu/nanoseconds", "com.example.function"},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			data := corpus.Read("pprof/" + test.file)
			w := read(t, data)
			var types []string
			for _, vt := range w.Types {
				types = append(types, vt.Kind+"/"+vt.Unit)
			}
			if got := strings.Join(types, " "); got != test.types {
				t.Errorf("types %q, want %q", got, test.types)
			}
			p, err := gp.ParseData(data)
			if err != nil {
				t.Fatal(err)
			}
			for i, st := range p.SampleType {
				if j := w.TypeIndex(st.Type); j >= 0 {
					var want int64
					for _, s := range p.Sample {
						want += s.Value[i]
					}
					if got := w.Total(j); got != want {
						t.Errorf("%s adds up to %d, want %d", st.Type, got, want)
					}
				}
			}
			found := test.stack == ""
			for _, r := range w.Rows.All() {
				s := ""
				for _, f := range w.AppendStack(nil, r.Stack) {
					s += ";" + f.Function
				}
				found = found || strings.Contains(s, test.stack)
			}
			if !found {
				t.Errorf("no stack with %q", test.stack)
			}
			first := write(t, w)
			if diff := profiletest.Diff(w, read(t, first)); diff != "" {
				t.Errorf("does not come back:\n%s", diff)
			}
		})
	}
}

// shape builds profiles as some tools write them.
func shape(change func(p *gp.Profile)) *gp.Profile {
	f := &gp.Function{ID: 1, Name: "f", SystemName: "f", Filename: "f.py"}
	g := &gp.Function{ID: 2, Name: "g", SystemName: "g"}
	p := &gp.Profile{
		SampleType: []*gp.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &gp.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 10,
		Function: []*gp.Function{f, g},
		Location: []*gp.Location{{ID: 1, Line: []gp.Line{{Function: f, Line: 3}}}, {ID: 2, Line: []gp.Line{{Function: g, Line: 1}, {Function: f, Line: 4}}}},
	}
	p.Sample = []*gp.Sample{{Location: []*gp.Location{p.Location[1], p.Location[0]}, Value: []int64{20}}}
	change(p)
	return p
}

func TestForeignShapes(t *testing.T) {
	tests := []struct {
		name   string
		change func(p *gp.Profile)
		want   string
	}{
		{"no mapping, no address", func(*gp.Profile) {}, "n=1 f f g(inlined)"},
		{"one address for all", func(p *gp.Profile) {
			p.Mapping = []*gp.Mapping{{ID: 1, Start: 0, Limit: 1 << 30, File: "app", BuildID: "b"}}
			for _, l := range p.Location {
				l.Mapping, l.Address = p.Mapping[0], 1
			}
		}, "n=1 f f g(inlined)"},
		{"addresses alone", func(p *gp.Profile) {
			p.Mapping = []*gp.Mapping{{ID: 1, Start: 0x400000, Limit: 0x500000, Offset: 0x1000, File: "/bin/app"}}
			p.Location[0].Line, p.Location[1].Line = nil, nil
			p.Location[0].Mapping, p.Location[0].Address, p.Location[1].Address = p.Mapping[0], 0x400010, 0x7f00
		}, "n=1 app+0x1010 0x7f00"},
		{"labels", func(p *gp.Profile) {
			p.Sample[0].Label = map[string][]string{"thread_name": {"w"}, "thread_id": {"12"}, "tenant": {"a"}}
			p.Sample[0].NumLabel = map[string][]int64{"pid": {5}, "bytes": {8}}
		}, `n=1 f f g(inlined) pid=5 tid=12 thread=w comment=pprof labels left out: "bytes", "tenant"`},
		{"frames the file asks to drop", func(p *gp.Profile) { p.DropFrames = "g" }, "n=1 f f"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var file bytes.Buffer
			if err := shape(test.change).Write(&file); err != nil {
				t.Fatal(err)
			}
			w := read(t, file.Bytes())
			got := fmt.Sprintf("n=%d", w.N())
			for _, f := range w.AppendStack(nil, w.Rows.At(0).Stack) {
				if got += " " + f.Function; f.Inlined {
					got += "(inlined)"
				}
			}
			if th := w.Thread(w.Rows.At(0).Thread); th.TID != 0 {
				got += fmt.Sprintf(" pid=%d tid=%d thread=%s", th.PID, th.TID, th.Name)
			}
			for _, c := range w.Comments {
				got += " comment=" + c
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if w.Types[0].Period != 10 {
				t.Errorf("types %+v", w.Types)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	var twice bytes.Buffer
	zip := gzip.NewWriter(&twice)
	zip.Write(write(t, random(1)))
	zip.Close()
	whole := write(t, random(1))
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"empty", nil, "the file is empty"},
		{"no profile", []byte("hello"), "unrecognized profile format"},
		{"cut off", whole[:len(whole)/2], "unexpected EOF"},
		{"nothing measured", []byte{0x32, 0}, "it has no sample types"},
		{"compressed twice", twice.Bytes(), "compressed twice"},
		{"millions of empty messages", bytes.Repeat([]byte{0x12, 0}, 9<<20), "would take 1800 MB of memory: more than 1024"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := pprof.Read(bytes.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q in it", err, test.want)
			}
		})
	}
}

// goTool runs the go command that built this test.
func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestGoToolPprof(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.pb.gz")
	original := filepath.Join(dir, "original.pb.gz")
	data := corpus.Read("pprof/go-cpu.pb.gz")
	for name, content := range map[string][]byte{original: data, file: write(t, read(t, data))} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, report := range []string{"-top", "-peek=main.inner", "-traces"} {
		want := goTool(t, dir, "tool", "pprof", report, original)
		got := goTool(t, dir, "tool", "pprof", report, file)
		if report == "-traces" { // labels that a window has no place for
			want = strings.ReplaceAll(want, "    tenant:  a\n", "")
		}
		if got = dropComments(got); got != want {
			t.Errorf("%s differs:\n%s\nwant:\n%s", report, got, want)
		}
	}
	if err := os.WriteFile(file, write(t, random(5)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := goTool(t, dir, "tool", "pprof", "-raw", file); !strings.Contains(got, "samples/count cpu/nanoseconds[dflt]") {
		t.Errorf("-raw:\n%s", got)
	}
	if got := goTool(t, dir, "tool", "pprof", "-top", "-unit=ms", file); !strings.Contains(got, "Type: cpu") {
		t.Errorf("-top:\n%s", got)
	}
}

// dropComments drops the lines of comments and notes that are ours.
func dropComments(report string) string {
	var out []string
	for line := range strings.Lines(report) {
		if !strings.HasPrefix(line, "pprof labels left out") && !strings.HasPrefix(line, "atys.") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// The compiler takes the same decisions from a profile that went through us.
func TestProfileGuidedBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program twice")
	}
	dir := t.TempDir()
	data := corpus.Read("pprof/go-cpu.pb.gz")
	for name, content := range map[string][]byte{
		"go.mod":     []byte("module example.com/shop\n\ngo 1.26\n"),
		"main.go":    corpus.Read("pprof/shop.go.txt"),
		"before.pgo": data,
		"after.pgo":  write(t, read(t, data)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	decisions := func(profile string) string {
		return goTool(t, dir, "build", "-trimpath", "-o", "shop", "-pgo="+filepath.Join(dir, profile), "-gcflags=-d=pgodebug=1", ".")
	}
	before, after := decisions("before.pgo"), decisions("after.pgo")
	if before != after {
		t.Errorf("the compiler said\n%s\nand without us\n%s", after, before)
	}
	if !strings.Contains(after, "hot-node enabled increased budget=2000 for func=main.order") {
		t.Errorf("the compiler made no use of the profile:\n%s", after)
	}
}

// What parses is written such that it parses to the same bytes again.
func FuzzRead(f *testing.F) {
	for _, name := range corpus.Names("pprof") {
		if data := corpus.Read(name); bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			f.Add(unzip(f, data))
		} else if len(data) < 4000 {
			f.Add(data)
		}
	}
	for seed := range uint64(4) {
		f.Add(unzip(f, write(f, random(seed))))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		w, err := pprof.Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		first := write(t, w)
		again := read(t, first)
		if again.N() != w.N() || again.Rows.Len() != w.Rows.Len() {
			t.Fatalf("%d samples in %d rows became %d in %d", w.N(), w.Rows.Len(), again.N(), again.Rows.Len())
		}
		if second := write(t, again); !bytes.Equal(first, second) {
			t.Fatalf("not the same bytes:\n%s\n%s", unzip(t, first), unzip(t, second))
		}
	})
}

// large has 100,000 nodes: stacks of 20 frames that share their roots.
func large() *profile.Window {
	r := rand.New(rand.NewPCG(1, 1))
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	var ids []profile.LocationID
	for i := range 20000 {
		f := profile.Frame{Function: fmt.Sprintf("pkg/sub.Type.method%d", i), File: fmt.Sprintf("/src/pkg/file%d.go", i/20), Line: i, StartLine: 1,
			Mapping: "/usr/bin/shop", Kind: profile.KindNative}
		ids = append(ids, b.Location(profile.Location{Kind: profile.KindNative, BuildID: "ab", Offset: uint64(0x1000 + 16*i)}, f))
	}
	threads := make([]profile.ThreadID, 50)
	for i := range threads {
		threads[i] = b.Thread(profile.Thread{PID: 1, TID: i, Process: "shop", Name: fmt.Sprintf("http-%d", i)})
	}
	stack := make([]profile.LocationID, 20)
	for range 12500 {
		for d := range stack {
			if d < 8 {
				stack[d] = ids[r.IntN(len(ids))]
			} else {
				stack[d] = ids[d*10+r.IntN(2)]
			}
		}
		b.Add(profile.Row{Stack: b.Stack(stack, profile.EndComplete), Thread: threads[r.IntN(len(threads))], N: 3, Values: []int64{3e6}, Squares: []float64{3e12}})
	}
	return b.Window()
}

func BenchmarkRead100kNodes(b *testing.B) {
	data := write(b, large())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		read(b, data)
	}
}

func BenchmarkWrite100kNodes(b *testing.B) {
	w := large()
	for b.Loop() {
		write(b, w)
	}
}
