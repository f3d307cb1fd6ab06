package wire

import (
	"bytes"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// What explains stacks is read from zstd in a third of the time that gzip takes
// (BenchmarkUnpack), which was a tenth of a server's; the standard library's gzip
// takes half as long again. Everybody knows gzip, so that it is what is sent to
// whom nothing is known of. Most of a window is hashes, which nothing compresses.
const (
	GzipName = "gzip" // as HTTP calls them
	ZstdName = "zstd"
)

// mostWindow is how far back compressed bytes may refer: as much memory is taken
// for them. RFC 8878 asks for this.
const mostWindow = 8 << 20

func newGunzip() connect.Decompressor { return &bounded{Decompressor: new(gzip.Reader)} }

func newGzip() connect.Compressor { return gzip.NewWriter(io.Discard) }

func newUnzstd() connect.Decompressor {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow), zstd.WithDecodeBuffersBelow(0))
	if err != nil {
		panic(err) // the options are the same each time
	}
	return &bounded{Decompressor: unzstd{z}}
}

func newZstd() connect.Compressor {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(sentWindow))
	if err != nil {
		panic(err) // the options are the same each time
	}
	return z
}

// Packer packs bytes as they are sent to who takes zstd, for those that measure it:
// a client of connect does it by itself. Use NewPacker.
type Packer struct{ zstd connect.Compressor }

// NewPacker prepares one, to be used again and again.
func NewPacker() *Packer { return &Packer{newZstd()} }

// Pack packs a message's bytes.
func (p *Packer) Pack(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	p.zstd.Reset(&packed)
	if _, err := p.zstd.Write(data); err != nil {
		return nil, err
	}
	if err := p.zstd.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// sentWindow is enough for what explains a window's stacks; agents have memory for
// twice as much while they send.
const sentWindow = 512 << 10

// unzstd can be used again after it was closed, as connect does.
type unzstd struct{ *zstd.Decoder }

func (z unzstd) Close() error { return z.Reset(nil) }

// bounded ends soon after as much came as a message may have: connect would read the
// rest, to say how much it is, and of sixteen megabytes of zeros that are terabytes.
type bounded struct {
	connect.Decompressor
	given int64
}

func (b *bounded) Reset(from io.Reader) error {
	b.given = 0
	return b.Decompressor.Reset(from)
}

func (b *bounded) Read(to []byte) (int, error) {
	if b.given > MaxRequest {
		return 0, fmt.Errorf("there is more behind %d bytes", b.given)
	}
	n, err := b.Decompressor.Read(to)
	b.given += int64(n)
	return n, err
}

// Packing has a client of connect send what is compressed in a way of that name,
// and take both.
func Packing(name string) connect.ClientOption {
	return connect.WithClientOptions(connect.WithAcceptCompression(GzipName, newGunzip, newGzip),
		connect.WithAcceptCompression(ZstdName, newUnzstd, newZstd), connect.WithSendCompression(name))
}

// unpacking has a handler of connect take both.
func unpacking() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCompression(GzipName, newGunzip, newGzip), connect.WithCompression(ZstdName, newUnzstd, newZstd))
}
