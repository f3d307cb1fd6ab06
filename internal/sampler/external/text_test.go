package external

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// dump writes what was read, for people to check.
func dump(w *profile.Window) string {
	var rows []string
	for _, r := range w.Rows.All() {
		t := w.Thread(r.Thread)
		row := fmt.Sprintf("n=%d values=%v pid=%d tid=%d process=%q thread=%q end=%q\n", r.N, r.Values, t.PID, t.TID, t.Process, t.Name, w.Stacks[r.Stack].End)
		for _, f := range w.AppendStack(nil, r.Stack) {
			row += fmt.Sprintf("    %s %q", f.Kind, f.Function)
			if f.Inlined {
				row += " inlined"
			}
			if f.File != "" {
				row += fmt.Sprintf(" at %s:%d", f.File, f.Line)
			}
			row += "\n"
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	t := w.Types[0]
	return fmt.Sprintf("types [{Kind:%s Unit:%s Period:%d}]\nsamples %d\n", t.Kind, t.Unit, t.Period, w.N()) + strings.Join(rows, "")
}

func readJava(r io.Reader, o textOptions) (*profile.Window, error) {
	return readCollapsed(r, 7, "java", o)
}

var readers = map[string]func(io.Reader, textOptions) (*profile.Window, error){"pyspy": readPySpy, "collapsed": readJava}

// The goldens were checked by hand against the text: threads, processes, kinds.
func TestRealText(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			file, err := os.Open(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			w, err := read(file, textOptions{period: 1e6, threads: true})
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden")
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
	tests := []struct{ name, reader, in, want string }{
		{"a thread without a name", "pyspy", "thread (9);run (/a.py:1) 2\n", "n=2 values=[2000000] pid=0 tid=9 process=\"\" thread=\"\" end=\"complete\"\n    python \"run\" at /a.py:1\n"},
		{"a thread known by its address", "pyspy", "process 1:\"x y\";thread (0x7F00): w;f (/a.py:1) 1\n", `pid=1 tid=0 process="x" thread="w"`},
		{"a file with a semicolon, brackets and a colon", "pyspy", "thread (1): m;f (/a;b (1):2.py:33);g (<string>:1) 1\n",
			"    python \"f\" at /a;b (1):2.py:33\n    python \"g\" at <string>:1\n"},
		{"a command line with semicolons and quotes", "pyspy", "process 1:\"/bin/p -c \"a;b\"\";thread (1): m;f (/a.py:1) 1\n", `process="p" thread="m"`},
		{"nested processes: the innermost counts", "pyspy", "process 1:\"sh\";process 2:\"p\";thread (2): m;f (/a.py:1) 1\n", `pid=2 tid=2 process="p"`},
		{"frames without lines", "pyspy", "thread (1): m;f (a.so) 1\n", "    python \"f\" at a.so:0\n"},
		{"text that is none of these", "pyspy", "a;b 1\n", "    python \"a;b\"\n"},
		{"no thread", "collapsed", "a/B.c_[j];x_[k] 1\n", "    java-jit \"a.B.c\"\n    kernel \"x\"\n"},
		{"native names keep their slashes and blanks", "collapsed", "operator/ new(int);[libz.so] 1\n", "    native \"operator/ new(int)\"\n    native \"[libz.so]\"\n"},
		{"interpreted, inlined", "collapsed", "[t tid=4];a/B.c_[0];a/B.d_[i] 1\n", "pid=7 tid=4 process=\"java\" thread=\"t\" end=\"unknown\"\n    java-interpreted \"a.B.c\"\n    java-jit \"a.B.d\" inlined\n"},
		{"not walkable", "collapsed", "[t tid=4];[not_walkable_Java];f 3\n", "end=\"unsupported unwind information\"\n    native \"f\"\n"},
		{"too deep", "collapsed", strings.Repeat("a/B.c_[j];", javaDepth-1) + "d 1\n", `end="too deep"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := readers[test.reader](strings.NewReader(test.in), textOptions{period: 1e6, threads: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := dump(w); !strings.Contains(got, test.want) {
				t.Errorf("got:\n%s\nwant in it:\n%s", got, test.want)
			}
		})
	}
}

func TestThreadsAreFoldedUnlessAskedFor(t *testing.T) {
	const in = "process 1:\"p\";thread (1): m;f (/a.py:1) 1\nprocess 1:\"p\";thread (2): n;f (/a.py:1) 4\n"
	w, err := readPySpy(strings.NewReader(in), textOptions{period: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := profile.Thread{PID: 1, TID: 1, Process: "p", Name: "p"}
	if w.Rows.Len() != 1 || w.Rows.At(0).N != 5 || w.Total(0) != 50 || w.Thread(w.Rows.At(0).Thread) != want {
		t.Errorf("got %s", dump(w))
	}
}

func TestTextIsRefused(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"no count", "a;b 1\nmain\n", `line 2: no count in "main"`},
		{"cut off", "a;b 12\na;b", `line 2: no count`},
		{"not a number", "a x\n", `line 1: "x" is not a count`},
		{"negative", "a -1\n", `"-1" is not a count`},
		{"absurd", "a 99999999999\n", `is not a count`},
		{"too deep", strings.Repeat("a;", maxFrames) + "b 1\n", "more than 65536 frames"},
		{"endless line", strings.Repeat("a", maxLine+1), "line 1: longer than 16 MB"},
	}
	for _, test := range tests {
		for name, read := range readers {
			if _, err := read(strings.NewReader(test.in), textOptions{period: 1}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: got error %v, want %q in it", test.name, name, err, test.want)
			}
		}
	}
	if _, err := readPySpy(&bounded{from: strings.NewReader("a 1\na 1\n"), left: 4}, textOptions{period: 1}); err == nil {
		t.Error("a text longer than its bound was read as whole")
	}
}

// Every sample read is in the rows, once, with its weight, whatever a text holds.
func fuzzReader(f *testing.F, name string, seeds ...string) {
	data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		f.Fatal(err)
	}
	for i, line := range slices.Collect(strings.Lines(string(data))) {
		if i < 4 {
			f.Add([]byte(line))
		}
	}
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		w, err := readers[name](strings.NewReader(string(in)), textOptions{period: 3, threads: true})
		if err != nil {
			return
		}
		var total int64
		if err := eachLine(strings.NewReader(string(in)), func(_ string, count int64) error {
			total += count
			return nil
		}); err != nil {
			t.Fatalf("read, but not by lines: %v", err)
		}
		if w.N() != total || w.Total(0) != 3*total {
			t.Fatalf("%d samples of %d ns became %d of %d", total, 3*total, w.N(), w.Total(0))
		}
		for _, names := range w.Names {
			if len(names) != 1 || names[0].Function == "" {
				t.Fatalf("a location without a name: %+v", names)
			}
		}
	})
}

func FuzzReadPySpy(f *testing.F) {
	fuzzReader(f, "pyspy", "process 1:\"a;b\";thread (1): x;y (z;f (/a;b:1);g (c) 1\n", ";; 1\nthread (1): ; 2\n",
		"process 1:\";thread (1):x;g (c) 1\nprocess 1:\"\";thread (1):x 1\n")
}

func FuzzReadCollapsed(f *testing.F) {
	fuzzReader(f, "collapsed", "[a tid=1] tid=2];;x_[k];_[j] 1\n", "[break_x];[unknown_Java] 1\n")
}

// TestLast has tools print what is no text, and long lines: what is cut of them is.
func TestLast(t *testing.T) {
	for name, c := range map[string]struct{ said, want string }{
		"nothing":          {"\n \n", ""},
		"a path":           {"cannot open /tmp/\xff\n", ": cannot open /tmp/\ufffd"},
		"within a letter":  {"x" + strings.Repeat("é", 200), ": x" + strings.Repeat("é", 149)},
		"the last of many": {"a\nb\nc\nd\ne\nStack backtrace:\nf", ": b; c; d; e"},
	} {
		var s said
		if _, err := s.Write([]byte(c.said)); err != nil {
			t.Fatal(err)
		}
		if got := s.last(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
