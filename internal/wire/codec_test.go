package wire

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestTooManyParts refuses messages that are small on the wire alone.
func TestTooManyParts(t *testing.T) {
	b := NewBinary()
	empty := func(field byte, n int) []byte { return bytes.Repeat([]byte{field<<3 | 2, 0}, n) }
	contains := func(n int) []byte { return bytes.Repeat([]byte{0x92, 1, 0}, n) } // 18 of a window
	within := func(field byte, inner []byte) []byte {
		data, err := proto.Marshal(&atysv1.PushRequest{Stacks: inner}) // bytes, as a message is
		if err != nil {
			t.Fatal(err)
		}
		data[0] = field<<3 | 2
		return data
	}
	for _, test := range []struct {
		name    string
		data    []byte
		message proto.Message
		ok      bool
	}{
		{"windows", empty(3, MaxWindows), &atysv1.PushRequest{}, true},
		{"one window more", empty(3, MaxWindows+1), &atysv1.PushRequest{}, false},
		{"one series more", empty(1, MaxWindows+1), &atysv1.PushRequest{}, false},
		{"types of one window", within(3, empty(8, MaxParts)), &atysv1.PushRequest{}, false},
		{"parts of one window", within(3, contains(MaxWindows)), &atysv1.PushRequest{}, true},
		{"one part more", within(3, contains(MaxWindows+1)), &atysv1.PushRequest{}, false},
		{"targets", empty(4, MaxParts+1), &atysv1.ReportRequest{}, false},
		{"objects", empty(1, MaxParts+1), &atysv1.ApplyRequest{}, false},
	} {
		err := b.Unmarshal(test.data, test.message)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for name, test := range map[string]struct {
		dictionary []byte
		ok         bool
	}{
		"calls": {empty(dictionaryNodes, MaxParts), true}, "one call more": {empty(dictionaryNodes, MaxParts+1), false},
		"strings": {empty(dictionaryStrings, MaxParts+1), false}, "names of one place": {within(dictionaryLocations, empty(locationNames, MaxParts)), false},
	} {
		if _, err := Learn(test.dictionary); (err == nil) != test.ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("a dictionary of %s: %v", name, err)
		}
	}
	for name, data := range map[string][]byte{"half a tag": {0x80}, "half a window": {0x1a, 9}, "half a field of one": {0x1a, 1, 0x80}} {
		if err := b.Unmarshal(data, &atysv1.PushRequest{}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestPartsAreCounted counts what random requests hold as the messages tell it.
func TestPartsAreCounted(t *testing.T) {
	codec := NewBinary()
	for seed := range uint64(100) {
		b := NewBatch(func(profile.Hash) bool { return false })
		if err := b.Add(Seal(window(seed), profile.Run{})); err != nil {
			t.Fatal(err)
		}
		request := b.Request()
		data, err := codec.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		left := MaxParts
		if err := codec.shapes["atys.v1.PushRequest"].count(data, &left); err != nil {
			t.Fatal(err)
		}
		if got, want := MaxParts-left, parts(request.ProtoReflect()); got != want {
			t.Errorf("seed %d: %d parts, want %d", seed, got, want)
		}
		read := &atysv1.PushRequest{}
		if err := codec.Unmarshal(data, read); err != nil || !proto.Equal(read, request) {
			t.Errorf("seed %d: %v, or it is another one", seed, err)
		}
	}
}

// parts counts by the messages' own description of themselves.
func parts(m protoreflect.Message) (n int) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			n += v.Map().Len()
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				n += 1 + parts(v.List().Get(i).Message())
			}
		case f.IsList() && f.Kind() == protoreflect.BytesKind, f.IsList() && f.Kind() == protoreflect.StringKind:
			n += v.List().Len()
		case f.Message() != nil:
			n += 1 + parts(v.Message())
		}
		return true
	})
	return n
}

func TestJSON(t *testing.T) {
	codec := JSON{"json"}
	m := &atysv1.GetRequest{}
	if err := codec.Unmarshal([]byte(`{"kind":"agents","unheardOf":1}`), m); err != nil || m.GetKind() != "agents" {
		t.Errorf("%v, %v", m, err)
	}
	if text, err := codec.Marshal(m); err != nil || !bytes.Contains(text, []byte("agents")) {
		t.Errorf("%s, %v", text, err)
	}
	if err := codec.Unmarshal([]byte(`{"kind":"`+strings.Repeat("x", MaxJSON)+`"}`), m); !errors.Is(err, ErrMalformed) {
		t.Errorf("more than is taken: %v", err)
	}
}

// TestStringsAreLearntOnce has many locations name one long string.
func TestStringsAreLearntOnce(t *testing.T) {
	const size, locations = 1 << 20, 100
	d := &atysv1.Dictionary{Strings: [][]byte{nil, make([]byte, size)}}
	for i := range locations {
		d.Locations = append(d.Locations, &atysv1.Location{Kind: 1, BuildId: 1, Name: 1, File: 1, Offset: uint64(i)})
	}
	data, err := proto.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	forest, err := Learn(data)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 10*size {
		t.Errorf("%d bytes are kept of a string of %d", kept, size)
	}
	runtime.KeepAlive(forest)
}

// BenchmarkBinary reads a request, and counts its parts alone.
func BenchmarkBinary(b *testing.B) {
	codec, batch := NewBinary(), NewBatch(func(profile.Hash) bool { return false })
	for seed := range uint64(100) {
		if err := batch.Add(Seal(window(seed), profile.Run{})); err != nil {
			b.Fatal(err)
		}
	}
	data, err := codec.Marshal(batch.Request())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := codec.Unmarshal(data, &atysv1.PushRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			left := MaxParts
			if err := codec.shapes["atys.v1.PushRequest"].count(data, &left); err != nil {
				b.Fatal(err)
			}
		}
	})
}
