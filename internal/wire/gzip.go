package wire

import (
	"io"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/gzip"
)

// connect's own gzip is the standard library's; this one is read and written in
// less time, and a window of a fleet is mostly that.
const gzipName = "gzip"

func newUnpacker() connect.Decompressor { return new(gzip.Reader) }

func newPacker() connect.Compressor { return gzip.NewWriter(io.Discard) }

// Packing has a client of connect send what is compressed, and take it.
func Packing() connect.ClientOption {
	return connect.WithClientOptions(connect.WithAcceptCompression(gzipName, newUnpacker, newPacker), connect.WithSendGzip())
}
