package wire

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"testing"
)

// BenchmarkUnpack reads bytes that compress by half, with the standard library
// and with what connect is given.
func BenchmarkUnpack(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	whole := make([]byte, 8000)
	for i := range whole {
		whole[i] = byte(r.IntN(4) * r.IntN(16))
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(whole) // to a buffer
	_ = z.Close()
	b.Run("standard", func(b *testing.B) {
		var z gzip.Reader
		for b.Loop() {
			_ = z.Reset(bytes.NewBuffer(packed.Bytes()))
			_, _ = io.Copy(io.Discard, &z)
		}
	})
	b.Run("ours", func(b *testing.B) {
		z := newUnpacker()
		for b.Loop() {
			_ = z.Reset(bytes.NewBuffer(packed.Bytes()))
			_, _ = io.Copy(io.Discard, z)
		}
	})
}
