package live

import (
	"bytes"
	"slices"
	"testing"
)

func TestParseKeys(t *testing.T) {
	for _, c := range []struct {
		name, in string
		idle     bool
		keys     []Key
		rest     string
	}{
		{"characters", "q/é世", false, []Key{"q", "/", "é", "世"}, ""},
		{"arrows", "\x1b[A\x1b[B\x1bOA\x1bOB", false, []Key{KeyUp, KeyDown, KeyUp, KeyDown}, ""},
		{"pages", "\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", false, []Key{KeyPageUp, KeyPageDown, KeyHome, KeyEnd, KeyHome, KeyEnd}, ""},
		{"wheel", "\x1b[<64;10;5M\x1b[<65;1;1M", false, []Key{KeyWheelUp, KeyWheelDown}, ""},
		{"a click is nothing", "\x1b[<0;10;5M\x1b[<0;10;5mq", false, []Key{"q"}, ""},
		{"control", "\x03\r\x7f\x08\x01", false, []Key{KeyInterrupt, KeyEnter, KeyBackspace, KeyBackspace}, ""},
		{"an escape may go on", "\x1b", false, nil, "\x1b"},
		{"an escape alone", "\x1b", true, []Key{KeyEscape}, ""},
		{"an unfinished sequence", "\x1b[<64;1", false, nil, "\x1b[<64;1"},
		{"one that stays unfinished", "\x1b[1", true, []Key{KeyEscape, "[", "1"}, ""},
		{"escape and a key", "\x1bq", false, []Key{KeyEscape, "q"}, ""},
		{"a function key is nothing", "\x1b[15~x", false, []Key{"x"}, ""},
		{"half a character", "\xe4\xb8", false, nil, "\xe4\xb8"},
		{"not a character", "\xffq", false, []Key{"q"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys, rest := parseKeys([]byte(c.in), c.idle)
			if !slices.Equal(keys, c.keys) || string(rest) != c.rest {
				t.Errorf("%q, rest %q; want %q, %q", keys, rest, c.keys, c.rest)
			}
		})
	}
}

// FuzzParseKeys: however a stream is cut into reads, it means the same, and
// what is held back stays short.
func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("q\x1b[A\x1b[<64;1;2M/x\r"), 3)
	f.Add([]byte("\x1b[[[[\x1bO\x1b\x1b"), 1)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		whole, rest := parseKeys(in, false)
		if len(rest) > maxSequence {
			t.Errorf("%d bytes held back", len(rest))
		}
		if cut < 0 || cut > len(in) {
			return
		}
		first, held := parseKeys(bytes.Clone(in[:cut]), false)
		second, rest2 := parseKeys(append(bytes.Clone(held), in[cut:]...), false)
		if !slices.Equal(append(first, second...), whole) || !bytes.Equal(rest, rest2) {
			t.Errorf("cut at %d: %q and %q, rest %q; whole: %q, rest %q", cut, first, second, rest2, whole, rest)
		}
		for _, k := range whole {
			if k == "" {
				t.Error("a key without a name")
			}
		}
		if _, rest := parseKeys(in, true); len(rest) > 0 {
			t.Errorf("%q held back although nothing more comes", rest)
		}
	})
}
