package folded_test

import (
	"bytes"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/folded"
)

func write(t testing.TB, w *profile.Window, o folded.Options) string {
	t.Helper()
	var b strings.Builder
	if err := folded.Write(&b, w, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func sample(t testing.TB) *profile.Window {
	t.Helper()
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0), {Kind: "page-faults", Unit: "count"}}})
	main := b.Named(profile.Frame{Function: "main", Kind: profile.KindNative})
	odd := b.Named(profile.Frame{Function: "Lcom/Shop;\n::go 50% ", Kind: profile.KindJavaCompiled})
	read := b.Named(profile.Frame{Function: "vfs_read", Kind: profile.KindKernel})
	liar := b.Named(profile.Frame{Function: "user_[k]", Kind: profile.KindNative})
	inlined := b.Location(profile.Location{BuildID: "ab", Offset: 1},
		profile.Frame{Function: "operator new(unsigned long)", Inlined: true}, profile.Frame{Function: "alloc"})
	shop := b.Thread(profile.Thread{PID: 1, TID: 2, Process: "shop", Name: "http-1"})
	add := func(stack profile.StackID, thread profile.ThreadID, n, cpu int64) {
		b.Add(profile.Row{Stack: stack, Thread: thread, N: n, Values: []int64{cpu, 0}})
	}
	add(b.Stack([]profile.LocationID{read, odd, main}, profile.EndComplete), shop, 3, 30e6)
	add(b.Stack([]profile.LocationID{inlined, main}, profile.EndComplete), 0, 2, 20e6)
	add(b.Stack([]profile.LocationID{liar}, profile.EndTooDeep), shop, 1, 10e6)
	add(b.Stack(nil, profile.EndNoUser), 0, 1, 10e6)
	return b.Window()
}

func TestWrite(t *testing.T) {
	tests := []struct {
		name    string
		options folded.Options
		want    string
	}{
		{"samples", folded.Options{}, `[no stack] 1
[too deep];user_%5Bk] 1
main;Lcom/Shop%3B%0A::go 50%%20;vfs_read_[k] 3
main;alloc;operator new(unsigned long) 2
`},
		{"threads", folded.Options{Type: "cpu", Process: true, Thread: true}, `[no stack] 10000000
main;alloc;operator new(unsigned long) 20000000
shop;http-1;[too deep];user_%5Bk] 10000000
shop;http-1;main;Lcom/Shop%3B%0A::go 50%%20;vfs_read_[k] 30000000
`},
		{"nothing", folded.Options{Type: "page-faults"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := write(t, sample(t), test.options); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
	if err := folded.Write(&strings.Builder{}, sample(t), folded.Options{Type: "heat"}); err == nil || !strings.Contains(err.Error(), `"heat"`) {
		t.Errorf("unknown type: %v", err)
	}
}

func TestRoundTripKeepsNamesAndCounts(t *testing.T) {
	first := write(t, sample(t), folded.Options{})
	w, err := folded.Read(strings.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if second := write(t, w, folded.Options{}); second != first {
		t.Errorf("got:\n%s\nwant:\n%s", second, first)
	}
	frames := w.AppendStack(nil, w.Rows.At(2).Stack)
	if f := frames[1]; f.Function != "Lcom/Shop;\n::go 50% " {
		t.Errorf("name came back as %q", f.Function)
	}
	if f := frames[2]; f.Function != "vfs_read" || f.Kind != profile.KindKernel {
		t.Errorf("kernel frame came back as %+v", f)
	}
	if end := w.Stacks[w.Rows.At(1).Stack].End; end != profile.EndTooDeep {
		t.Errorf("truncated stack came back %s", end)
	}
}

func TestRead(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"crlf, blanks, comments", "# made by x\r\n\r\nmain;a 1\r\nmain;a 2", "main;a 3\n"},
		{"tab before the count", "main;a\t7\n", "main;a 7\n"},
		{"spaces in names", "main thread;operator new(unsigned long) 4\n", "main thread;operator new(unsigned long) 4\n"},
		{"fractions are rounded", "a 1.5\nb 2.0\nc 1e3\n", "a 2\nb 2\nc 1000\n"},
		{"negative, of a difference", "a -5\n", "a -5\n"},
		{"empty frames", "a;;b 1\n;c 1\nd; 1\n", "[unknown];c 1\na;[unknown];b 1\nd;[unknown] 1\n"},
		{"marks", "m_[k];j_[j];i_[i];z_[0];o_[1] 1\n", "m_[k];j;i;z;o 1\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := folded.Read(strings.NewReader(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := write(t, w, folded.Options{}); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"no count", "a;b 1\nmain\n", `line 2: no count at the end of "main"`},
		{"not a number", "a;b x\n", `line 1: "x" is not a count`},
		{"not a finite one", "a inf\n", `line 1: "inf" is not a count`},
		{"too large", "a 99999999999999999999\n", "is not a count"},
		{"empty", "\n# nothing\n", "no stacks in it"},
		{"too deep", strings.Repeat("a;", 1<<16) + "b 1\n", "line 1: 65537 frames"},
		{"endless line", strings.Repeat("a", 17<<20), "line 1: longer than 16 MB"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := folded.Read(strings.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q in it", err, test.want)
			}
		})
	}
}

// What parses is written such that it parses to the same again.
func FuzzRead(f *testing.F) {
	f.Add([]byte("main;a_[k] 1\nmain;%3B;b 2.5\n"))
	f.Add([]byte("[too deep];a 1\n[no stack] 2\n;; 3\n#x 1\n %23x 1\n"))
	f.Add([]byte("a%2;b%20;%5Bk]_%5Bk] 1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		w, err := folded.Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		total := w.N()
		first := write(t, w, folded.Options{})
		if first == "" {
			return
		}
		again, err := folded.Read(strings.NewReader(first))
		if err != nil {
			t.Fatalf("%q: %v", first, err)
		}
		if second := write(t, again, folded.Options{}); second != first {
			t.Fatalf("%q became %q", first, second)
		}
		if again.N() != total {
			t.Fatalf("%d samples became %d", total, again.N())
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var in bytes.Buffer
	for i := 0; in.Len() < 10<<20; i++ {
		in.WriteString("main;runtime.main;net/http.(*conn).serve;net/http.HandlerFunc.ServeHTTP;shop.handler")
		for d := range 6 {
			in.WriteString(";shop.level" + string(rune('a'+(i>>(2*d))&15)))
		}
		in.WriteString(" 12\n")
	}
	b.SetBytes(int64(in.Len()))
	for b.Loop() {
		if _, err := folded.Read(bytes.NewReader(in.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// TestControlCharacters writes no name that steers a terminal, and reads it as it was.
func TestControlCharacters(t *testing.T) {
	const line = "a%C2%9B31m%1B[m;\u00a0%7F 1\n"
	w, err := folded.Read(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.AppendStack(nil, w.Rows.At(0).Stack); got[1].Function != "\u00a0\x7f" || got[0].Function != "a\u009b31m\x1b[m" {
		t.Errorf("frames are %+v", got)
	}
	if got := write(t, w, folded.Options{}); got != line {
		t.Errorf("written is %q", got)
	}
}
