package wire

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"connectrpc.com/connect"
)

// packings are the ways to pack that connect is given.
var packings = map[string]struct {
	packer   func() connect.Compressor
	unpacker func() connect.Decompressor
}{GzipName: {newGzip, newGunzip}, ZstdName: {newZstd, newUnzstd}}

func packed(t testing.TB, p connect.Compressor, data []byte) []byte {
	t.Helper()
	var to bytes.Buffer
	p.Reset(&to)
	if _, err := p.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

// TestPackings reads what was packed, with one unpacker again and again, also
// after bytes that are none, and two packets as one.
func TestPackings(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, way := range packings {
		p, u := way.packer(), way.unpacker()
		read := func(data []byte) ([]byte, error) {
			if err := u.Reset(bytes.NewBuffer(data)); err != nil {
				return nil, err
			}
			return io.ReadAll(u)
		}
		for size := 1; size < MaxRequest/4; size *= 7 {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(r.IntN(4) * r.IntN(16))
			}
			whole := packed(t, p, data)
			if got, err := read(whole); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes: %d came back: %v", name, size, len(got), err)
			}
			if got, err := read(append(bytes.Clone(whole), whole...)); err != nil && 2*size <= MaxRequest || !bytes.HasPrefix(got, data) {
				t.Errorf("%s: twice %d bytes: %d came back: %v", name, size, len(got), err)
			}
			if _, err := read(whole[:len(whole)/2]); err == nil {
				t.Errorf("%s: half of %d bytes was read", name, len(whole))
			}
			_ = u.Close() // gzip says again what was wrong
		}
	}
}

// TestBombs gives up soon after what a message may have.
func TestBombs(t *testing.T) {
	for name, way := range packings {
		bomb := packed(t, way.packer(), make([]byte, 8*MaxRequest))
		u := way.unpacker()
		if err := u.Reset(bytes.NewBuffer(bomb)); err != nil {
			t.Fatal(err)
		}
		given, err := io.Copy(io.Discard, u)
		if err == nil || given > MaxRequest+1<<20 {
			t.Errorf("%s: %d bytes of %d came: %v", name, given, len(bomb), err)
		}
	}
}

// FuzzUnpack has bytes of strangers end, with an error or without.
func FuzzUnpack(f *testing.F) {
	for _, way := range packings {
		f.Add(packed(f, way.packer(), []byte("a window, mostly of hashes")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, way := range packings {
			u := way.unpacker()
			if u.Reset(bytes.NewBuffer(data)) != nil {
				continue
			}
			if given, _ := io.Copy(io.Discard, u); given > MaxRequest+1<<20 {
				t.Errorf("%d bytes came", given)
			}
			_ = u.Close() // gzip says again what was wrong
		}
	})
}

// BenchmarkUnpack reads what a server is sent: a window, which is hashes mostly,
// and what explains its stacks.
func BenchmarkUnpack(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	window := make([]byte, 16_000)
	for i := range window {
		if window[i] = byte(r.Uint32()); i > 12_000 {
			window[i] = byte(r.IntN(4) * r.IntN(16))
		}
	}
	explains := make([]byte, 0, 300_000)
	for len(explains) < cap(explains) {
		explains = append(explains, "\x22\x05\x08"...)
		explains = append(explains, byte(r.IntN(256)), byte(r.IntN(64)), 0x10, byte(r.IntN(256)), byte(r.IntN(16)))
	}
	for kind, data := range map[string][]byte{"window": window, "explanation": explains} {
		for name, way := range packings {
			whole := packed(b, way.packer(), data)
			b.Run(kind+" "+name, func(b *testing.B) {
				u := way.unpacker()
				for b.Loop() {
					if err := u.Reset(bytes.NewBuffer(whole)); err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, u)
				}
				b.ReportMetric(float64(len(whole)), "bytes-packed")
			})
		}
	}
}
