package lang

import "testing"

func TestAlbum(t *testing.T) {
	var a Album[uint64, string]
	if _, ok := a.Find(1); ok {
		t.Error("found in an empty album")
	}
	a.Keep(1, "kept")
	a.Keep(2, "forgotten")
	for what := range uint64(3 * albumHalf) {
		a.Keep(what+10, "other")
		if what%1000 == 0 {
			if got, ok := a.Find(1); !ok || got != "kept" {
				t.Fatalf("after %d others: %q, %v", what, got, ok)
			}
		}
	}
	if _, ok := a.Find(2); ok {
		t.Error("what nobody asks for is kept for ever")
	}
	if n := len(a.fresh) + len(a.old); n > 2*albumHalf {
		t.Errorf("%d kept", n)
	}
}

func TestText(t *testing.T) {
	p := Photograph{Bytes: []byte("abcdefgh\xe2\x82\xac")} // the last is one character
	for _, c := range []struct {
		at, room int
		length   uint32
		want     string
	}{
		{0, 4, 3, "abc"},
		{0, 4, 4, "abcd"},
		{0, 4, 5, "abcd…"},
		{2, 4, 0, ""},
		{4, 100, 1 << 31, "efgh€…"},
		{7, 3, 4, "h\ufffd…"},
		{12, 4, 4, ""},
	} {
		if got := p.Text(c.at, c.room, c.length); got != c.want {
			t.Errorf("%d bytes at %d with room for %d: %q, not %q", c.length, c.at, c.room, got, c.want)
		}
	}
}
