package perfscript_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/perfscript"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// dump writes what a reader gets out of a file, for people to check.
func dump(w *profile.Window) string {
	var b strings.Builder
	b.WriteString("types [")
	for i, t := range w.Types {
		fmt.Fprintf(&b, "%s{Kind:%s Unit:%s Period:%d}", strings.Repeat(" ", min(i, 1)), t.Kind, t.Unit, t.Period)
	}
	fmt.Fprintf(&b, "]\nduration %s\nlosses %+v\n", w.Duration, w.Losses)
	for _, c := range w.Comments {
		fmt.Fprintf(&b, "comment %q\n", c)
	}
	fmt.Fprintf(&b, "samples %d, timed %d\n", w.N(), len(w.Samples))
	var rows []string
	for _, r := range w.Rows.All() {
		t := w.Thread(r.Thread)
		row := fmt.Sprintf("n=%d values=%v pid=%d tid=%d process=%q thread=%q\n", r.N, r.Values, t.PID, t.TID, t.Process, t.Name)
		for _, f := range w.AppendStack(nil, r.Stack) {
			row += fmt.Sprintf("    %s %q", f.Kind, f.Function)
			if f.Inlined {
				row += " inlined"
			}
			if f.Mapping != "" {
				row += fmt.Sprintf(" in %q", f.Mapping)
			}
			if f.File != "" {
				row += fmt.Sprintf(" at %s:%d", f.File, f.Line)
			}
			row += "\n"
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return b.String() + strings.Join(rows, "")
}

func TestRealFiles(t *testing.T) {
	for _, name := range corpus.Names("perf") {
		if strings.HasSuffix(name, ".c.txt") {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			w, err := perfscript.Read(bytes.NewReader(corpus.Read(name)))
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(w.Comments, func(c string) bool { return strings.Contains(c, "not understood") }) {
				t.Errorf("real lines not understood: %q", w.Comments)
			}
			golden := filepath.Join("testdata", strings.TrimSuffix(filepath.Base(name), ".txt")+".golden")
			got := dump(w)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs (see -update):\n%s", golden, got)
			}
		})
	}
}

func TestShapes(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"inlined, modifiers, deleted file",
			"shop 7/8 [001] 5.000001: 250 cycles:ppp: \n\t 55d0 inl (inlined)\n\t 55d0 leaf+0x4 (/usr/bin/shop (deleted))\n\t 55e0 main (/opt/a (x86)/shop)\n",
			`values=[250] pid=7 tid=8 process="" thread="shop"
    native "main" in "/opt/a (x86)/shop"
    native "leaf" in "/usr/bin/shop"
    native "inl" inlined in "/usr/bin/shop"`},
		{"symbols with spaces and brackets",
			"a 1 2.0: 1 faults: \n\tff operator new(unsigned long)+0x1f (/l.so)\n\tfe std::f<int (*)(char)>(x) const (/l.so)\n\tfd g(int)\n",
			`values=[1] pid=0 tid=1 process="" thread="a"
    unknown "g(int)"
    native "std::f<int (*)(char)>(x) const" in "/l.so"
    native "operator new(unsigned long)" in "/l.so"`},
		{"unknown places, modules, JIT, Java",
			"java 5/5 1.5: 9 cpu-clock: \n\tffffffffc0de0000 nf_hook+0x1 ([nf_tables])\n\t 7f01 [unknown] (/usr/lib/libz.so.1)\n\t 7f02 [unknown] ([unknown])\n\t7f03 Lcom/Shop;::go+0x9 (/tmp/perf-5.map)\n\t 7f04 x ([vdso])\n",
			`values=[9] pid=5 tid=5 process="java" thread="java"
    native "x" in "[vdso]"
    jit "Lcom/Shop;::go" in "/tmp/perf-5.map"
    unknown "[unknown]"
    native "[libz.so.1]" in "/usr/lib/libz.so.1"
    kernel "nf_hook" in "[nf_tables]"`},
		{"tabs for spaces, CRLF",
			"web shop\t7/8\t[000]\t1.0:\t5\tcycles:\r\n\t55d0\tmain\t(/bin/shop)\r\n\r\n",
			`values=[5] pid=7 tid=8 process="" thread="web shop"
    native "main" in "/bin/shop"`},
		{"names like numbers and headers",
			"Web 2 1234 [001] 5.6: 3 cycles: \n\tbad main (/bin/x)\n",
			`values=[3] pid=0 tid=1234 process="" thread="Web 2"
    native "main" in "/bin/x"`},
		{"spaces for tabs",
			"dd 12 1.0: 5 cycles: \n    dead main (/bin/dd)\n",
			`values=[5] pid=0 tid=12 process="" thread="dd"
    native "main" in "/bin/dd"`},
		{"no period",
			"dd 12 1.0: cpu-clock: \n\tdead main (/bin/dd)\n",
			`values=[1] pid=0 tid=12 process="" thread="dd"
    native "main" in "/bin/dd"`},
		{"source with discriminator, unknown source",
			"dd 12 1.0: 2 cycles: \n\tdead main (/bin/dd)\n  dd.c:7 (discriminator 3)\n\tbeef start (/bin/dd)\n  ??:0\n\tbeef raw (/bin/dd)\n  raw+0x4\n",
			`values=[2] pid=0 tid=12 process="" thread="dd"
    native "raw" in "/bin/dd"
    native "start" in "/bin/dd"
    native "main" in "/bin/dd" at dd.c:7`},
		{"only times", " 2008.780665: \n\t1226 leaf (/bin/x)\n",
			`values=[1] pid=0 tid=0 process="" thread=""
    native "leaf" in "/bin/x"`},
		{"lost", "dd 12 1.0: 2 cycles: \n\tdead main (/bin/dd)\n\ndd 12 [000] 2.0: PERF_RECORD_LOST lost 12\n",
			`losses [{Reason:lost Detail:perf's ring buffer was full N:12 Value:0}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := perfscript.Read(strings.NewReader(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := dump(w); !strings.Contains(got, test.want) || strings.Contains(got, "not understood") {
				t.Errorf("got:\n%s\nwant in it:\n%s", got, test.want)
			}
		})
	}
}

func TestTimesAndEvents(t *testing.T) {
	const in = "a 1/1 [003] 10.000000250: 100 cpu-clock:u: \n\tab f (/a)\n\na 1/2 [000] 9.5: 1 page-faults: \n\tab f (/a)\n\na 1/1 [001] 9.75: 300 cpu-clock:u: \n\tab f (/a)\n"
	w, err := perfscript.Read(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	wantTypes := []profile.ValueType{profile.CPUTime(0), {Kind: "page-faults", Unit: "count", Period: 1}}
	if !slices.Equal(w.Types, wantTypes) {
		t.Errorf("types %+v, want %+v", w.Types, wantTypes)
	}
	if want := 500*time.Millisecond + 250; w.Duration != want {
		t.Errorf("duration %s, want %s", w.Duration, want)
	}
	if w.N() != 2 || w.Total(0) != 400 || w.Total(1) != 1 || w.Rows.At(0).Squares[0] != 100*100+300*300 {
		t.Errorf("rows %+v", w.Rows)
	}
	if s := w.Samples; len(s) != 2 || s[0].Time != 500*time.Millisecond+250 || s[0].CPU != 3 || s[1].Time != 250*time.Millisecond {
		t.Errorf("samples %+v", s)
	}
	if th := w.Threads; th[0].Process != "a" || th[1].Process != "a" {
		t.Errorf("threads %+v", th)
	}
}

func TestReadRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "\n", "no samples in it"},
		{"other text", "hello world\n", `no samples in it: line 1 is "hello world"`},
		{"endless line", "a 1 1.0: x: \n" + strings.Repeat("a", 2<<20), "line 2: longer than 1 MB"},
		{"endless stack", "a 1 1.0: x: \n" + strings.Repeat("\tab f (/a)\n", 1<<16+1), "line 65538: more than 65536 frames"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := perfscript.Read(strings.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q in it", err, test.want)
			}
		})
	}
}

// Every sample read is in the rows, and a file split at a blank line holds the
// samples of its parts.
func FuzzRead(f *testing.F) {
	for _, name := range corpus.Names("perf") {
		data := corpus.Read(name)
		f.Add(data[:min(len(data), 700)]) // the fuzzer is slow on long ones
	}
	f.Add([]byte("a 1 1.0: 1 x: \n\tab i (inlined)\n\tab f (/a)\n  a.c:3\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		w, err := perfscript.Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		twice := append(append(bytes.Clone(in), "\n\n"...), in...)
		again, err := perfscript.Read(bytes.NewReader(twice))
		if err != nil {
			t.Fatal(err)
		}
		if w.N() == 0 || again.N() != 2*w.N() || again.Rows.Len() != w.Rows.Len() {
			t.Fatalf("%d samples in %d rows, twice: %d in %d", w.N(), w.Rows.Len(), again.N(), again.Rows.Len())
		}
		for i := range w.Types {
			if again.Total(i) != 2*w.Total(i) {
				t.Fatalf("value %d: %d, twice: %d", i, w.Total(i), again.Total(i))
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	in := corpus.Read("perf/default.txt")
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, err := perfscript.Read(bytes.NewReader(in)); err != nil {
			b.Fatal(err)
		}
	}
}
