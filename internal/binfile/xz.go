package binfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// The .xz container is read here, because the library's reader of it allocates
// whatever dictionary a block asks for, up to 4 GiB:
//
//	stream header  FD '7zXZ' 00 | flags 2 | crc32 4
//	block          header size 1 | flags 1 | [sizes] | filters | padding | crc32 4
//	               LZMA2 chunks | padding to 4 | check
//	...            more blocks; a 00 instead of a header size begins the index
//
// Checks of the content are not verified: a wrong one could only be answered by
// ignoring the section, and names are no more trusted than the rest of the file.

const (
	xzMagic        = "\xfd7zXZ\x00"
	xzStreamHeader = 12
	xzFilterLZMA2  = 0x21
	xzMaxDict      = 64 << 20 // what xz -9e asks for
	xzAllDicts     = 64 << 20 // of all blocks together: each is allocated
)

// Sizes of the check behind each block, by type.
var xzCheckSizes = [16]int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}

var errXZ = errors.New("not a plain .xz stream")

// unpackXZ unpacks one stream of at most limit bytes.
func unpackXZ(r io.Reader, limit int) ([]byte, error) {
	in := &countingReader{r: bufio.NewReader(r)}
	var header [xzStreamHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return nil, err
	}
	if string(header[:6]) != xzMagic || header[6] != 0 || header[7] > 15 {
		return nil, errXZ
	}
	check := xzCheckSizes[header[7]]
	var out []byte
	dictionaries := 0
	for {
		dict, err := readXZBlockHeader(in)
		if err != nil {
			return nil, err
		}
		if dict == 0 {
			return out, nil
		}
		// A small block needs no large dictionary, whatever it says.
		dict = max(min(dict, limit), lzma.MinDictCap)
		if dictionaries += dict; dictionaries > xzAllDicts {
			return nil, fmt.Errorf("dictionaries of %d bytes for content of at most %d", dictionaries, limit)
		}
		start := in.n
		block, err := lzma.Reader2Config{DictCap: dict}.NewReader2(in)
		if err != nil {
			return nil, err
		}
		if out, err = appendAll(out, block, limit); err != nil {
			return nil, err
		}
		padding := (4 - (in.n-start)%4) % 4
		if _, err := io.CopyN(io.Discard, in, padding+check); err != nil {
			return nil, err
		}
	}
}

// appendAll appends what a reader gives. It doubles what it has, up to the limit, so
// that all copies together are as large as what is unpacked.
func appendAll(out []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(out) == cap(out) {
			larger := make([]byte, len(out), min(max(2*len(out), 1<<16), limit+1))
			copy(larger, out)
			out = larger
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if len(out) > limit {
			return nil, fmt.Errorf("more than %d bytes", limit)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// readXZBlockHeader gives the dictionary size of the next block, 0 at the index.
func readXZBlockHeader(r io.Reader) (int, error) {
	var buf [1024]byte
	if _, err := io.ReadFull(r, buf[:1]); err != nil {
		return 0, err
	}
	if buf[0] == 0 {
		return 0, nil
	}
	size := (int(buf[0]) + 1) * 4
	if _, err := io.ReadFull(r, buf[1:size]); err != nil {
		return 0, err
	}
	h := buf[:size]
	if crc32.ChecksumIEEE(h[:size-4]) != binary.LittleEndian.Uint32(h[size-4:]) {
		return 0, errXZ
	}
	flags := h[1]
	h = h[2 : size-4]
	for _, present := range []bool{flags&0x40 != 0, flags&0x80 != 0} {
		if present {
			_, n := binary.Uvarint(h)
			if n <= 0 {
				return 0, errXZ
			}
			h = h[n:]
		}
	}
	// One filter, LZMA2, with one byte of properties.
	if flags&0x3f != 0 || len(h) < 3 || h[0] != xzFilterLZMA2 || h[1] != 1 {
		return 0, errXZ
	}
	dict, err := lzma.DecodeDictCap(h[2])
	if err != nil || dict > xzMaxDict {
		return 0, fmt.Errorf("dictionary of %d bytes: more than %d are not used", dict, xzMaxDict)
	}
	return max(int(dict), 1), nil
}

// countingReader counts what was taken, and hands out single bytes so that the
// decoder behind it does not read ahead.
type countingReader struct {
	r *bufio.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}
