package dotnet

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func realTrace(t testing.TB) []byte {
	t.Helper()
	f, err := os.Open("testdata/chains.nettrace.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestParseReal reads what a runtime answered. How large the code of a method
// is was read from the process's memory.
func TestParseReal(t *testing.T) {
	methods, err := Parse(realTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := methods.Len(); n < 400 {
		t.Errorf("%d methods", n)
	}
	for _, want := range []Method{
		{0x7f44de658da0, 0x7f44de658da0 + 54, "Atys.Victim.Square.Area"},
		{0x7f44de6595e0, 0x7f44de6595e0 + 32, "Atys.Victim.Square.Area"}, // compiled again
		{0x7f44de656550, 0x7f44de656550 + 31, "Atys.Victim.Box`1[System.Int32].Keep"},
		{0x7f44de656c70, 0x7f44de656c70 + 332, "Atys.Victim.Chains+<Awaiting>c__async0.MoveNext"},
		{0x7f44de185620, 0x7f44de185620 + 24, "System.Threading.Tasks.Task.Yield"}, // compiled ahead
	} {
		for _, at := range []uint64{want.Start, want.End - 1} {
			if got, ok := methods.Find(at); !ok || got != want {
				t.Errorf("at %#x is %+v, want %+v", at, got, want)
			}
		}
		if got, _ := methods.Find(want.End); got.Name == want.Name {
			t.Errorf("%s goes beyond its end", want.Name)
		}
	}
}

// text is a string as events hold it.
func text(s string) (b []byte) {
	for _, u := range append(utf16.Encode([]rune(s)), 0) {
		b = le.AppendUint16(b, u)
	}
	return b
}

func methodEvent(start uint64, size uint32, class, name string) []byte {
	b := make([]byte, 16)
	b = le.AppendUint64(b, start)
	b = le.AppendUint32(b, size)
	b = append(b, make([]byte, 8)...)
	return slices.Concat(b, text(class), text(name), text("void ()"))
}

// trace is one of events whose kind has the given number: compressed or not.
func trace(compressed bool, provider string, id uint32, payloads ...[]byte) []byte {
	b := []byte(traceMagic)
	b = le.AppendUint32(b, uint32(len(objectMagic)))
	b = append(b, objectMagic...)
	object := func(name string, block bool, content []byte) {
		b = append(b, tagBegin, tagBegin, tagNull)
		b = append(b, make([]byte, 8)...)
		b = le.AppendUint32(b, uint32(len(name)))
		b = append(append(b, name...), tagEnd)
		if block {
			b = le.AppendUint32(b, uint32(len(content)))
			b = append(b, make([]byte, -len(b)&3)...)
		}
		b = append(append(b, content...), tagEnd)
	}
	events := func(kind uint32, payloads ...[]byte) []byte {
		c := le.AppendUint16(nil, 20)
		c = le.AppendUint16(c, 0)
		if compressed {
			c[2] = headsCompressed
		}
		c = append(c, make([]byte, 16)...)
		for _, p := range payloads {
			if compressed {
				c = append(c, 1|128, byte(kind), 0, byte(len(p)|0x80), byte(len(p)>>7))
				c = append(c, p...)
				continue
			}
			c = le.AppendUint32(le.AppendUint32(c, 0), kind)
			c = append(c, make([]byte, 68)...)
			c = append(le.AppendUint32(c, uint32(len(p))), p...)
			c = append(c, make([]byte, -len(c)&3)...)
		}
		return c
	}
	object("Trace", false, make([]byte, 48))
	object("MetadataBlock", true, events(0, le.AppendUint32(slices.Concat(le.AppendUint32(nil, 7), text(provider)), id)))
	object("StackBlock", true, []byte{1, 2, 3})
	object("EventBlock", true, events(7, payloads...))
	return append(b, tagNull)
}

func TestParse(t *testing.T) {
	add := methodEvent(0x1000, 0x10, "Shop.Cart", "Add")
	for _, tt := range []struct {
		name  string
		trace []byte
		want  string // names at 0x1000, 0x1008 and 0x1010
		err   error
	}{
		{"compressed", trace(true, rundownProvider, methodAtEnd, add), "Shop.Cart.Add Shop.Cart.Add ", nil},
		{"plain", trace(false, rundownProvider, methodAtEnd, add), "Shop.Cart.Add Shop.Cart.Add ", nil},
		{"constructor", trace(true, rundownProvider, methodAtEnd, methodEvent(0x1000, 1, "Shop.Cart", ".ctor")), "Shop.Cart.ctor  ", nil},
		{"no class", trace(true, rundownProvider, methodAtStart, methodEvent(0x1000, 1, "", "f")), "f  ", nil},
		{"told later", trace(true, rundownProvider, methodAtEnd, add, methodEvent(0x1000, 8, "", "g")), "g  ", nil},
		{"overlapping", trace(true, rundownProvider, methodAtEnd, add, methodEvent(0x1008, 0x10, "", "g")), "Shop.Cart.Add g g", nil},
		{"another provider", trace(true, "Other", methodAtEnd, add), "  ", nil},
		{"another event", trace(true, rundownProvider, 150, add), "  ", nil},
		{"no name", trace(true, rundownProvider, methodAtEnd, methodEvent(0x1000, 1, "A", "")), "  ", nil},
		{"hostile name", trace(true, rundownProvider, methodAtEnd, methodEvent(0x1000, 1, "A", "b\x1b[2J")), "  ", nil},
		{"no code", trace(true, rundownProvider, methodAtEnd, methodEvent(0x1000, 0, "A", "b")), "  ", nil},
		{"kernel", trace(true, rundownProvider, methodAtEnd, methodEvent(1<<63, 8, "A", "b")), "  ", nil},
		{"cut", trace(true, rundownProvider, methodAtEnd, add)[:250], "  ", errTraceShort},
		{"cut at the end", bytes.TrimSuffix(trace(true, rundownProvider, methodAtEnd, add), []byte{tagNull}), "Shop.Cart.Add Shop.Cart.Add ", errTraceShort},
		{"not a trace", []byte("HTTP/1.1 400 Bad Request"), "  ", errTrace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			methods, err := Parse(tt.trace)
			if tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("got error %v, want %v", err, tt.err)
			}
			if tt.err == nil && (err == nil) != (methods.Len() > 0) {
				t.Errorf("%d methods and error %v", methods.Len(), err)
			}
			var names []string
			for _, at := range []uint64{0x1000, 0x1008, 0x1010} {
				m, _ := methods.Find(at)
				names = append(names, m.Name)
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	methods := NewMethods([]Method{{30, 40, "c"}, {10, 20, "a"}, {20, 30, "b"}})
	var names string
	for m := range methods.Within(15, 30) {
		names += m.Name
	}
	if names != "b" {
		t.Errorf("got %q", names)
	}
}

// FuzzParse asserts that what is found is sorted, does not overlap, and is
// found again by address.
func FuzzParse(f *testing.F) {
	f.Add(trace(true, rundownProvider, methodAtEnd, methodEvent(0x1000, 0x10, "Shop.Cart", "Add"), methodEvent(0x1008, 0x10, "", "g")))
	f.Add(trace(false, rundownProvider, methodAtStart, methodEvent(0x1000, 0x10, "Shop.Cart", "Add")))
	f.Add([]byte(traceMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		methods, err := Parse(data)
		if err == nil && methods.Len() == 0 {
			t.Error("no methods and no error")
		}
		last := uint64(0)
		for _, m := range methods.sorted {
			if m.Start < last || m.End <= m.Start || m.End > highestUserSpace || m.Name == "" || len(m.Name) > maxMethodName {
				t.Fatalf("%+v after %#x", m, last)
			}
			last = m.End
			if found, ok := methods.Find(m.End - 1); !ok || found != m {
				t.Fatalf("%+v is not found", m)
			}
		}
	})
}

// TestMethodNameCut asserts that a name too long ends with a whole character.
func TestMethodNameCut(t *testing.T) {
	for before := range 3 {
		name := methodName("", strings.Repeat("x", before)+strings.Repeat("€", maxMethodName))
		if !utf8.ValidString(name) || len(name) > maxMethodName || len(name) < maxMethodName-utf8.UTFMax {
			t.Errorf("%d bytes before: %d bytes, valid %v", before, len(name), utf8.ValidString(name))
		}
	}
}
