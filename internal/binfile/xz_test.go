package binfile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

// A small .gnu_debugdata neither unpacks to a large one nor makes work with dictionaries.
func TestMiniDebugIsBounded(t *testing.T) {
	var bomb bytes.Buffer
	w, err := xz.NewWriter(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, maxMiniDebug+1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, want string
		packed     []byte
	}{
		{"bomb", "more than", bomb.Bytes()},
		{"dictionaries", "dictionaries of", slices.Concat([]byte(xzMagic+"\x00\x00"), make([]byte, 4), bytes.Repeat(xzBlock(28), 1000))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := withSection(t, ".gnu_debugdata", 0, tc.packed, len(tc.packed))
			var err error
			if n := allocated(func() { _, err = f.MiniDebug() }); n > 72<<20 {
				t.Errorf("%d bytes allocated", n)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// xzBlock makes a block of one byte with a dictionary of this size: 28 is 64 MB.
func xzBlock(dictionary byte) []byte {
	h := []byte{2, 0, xzFilterLZMA2, 1, dictionary, 0, 0, 0}
	h = binary.LittleEndian.AppendUint32(h, crc32.ChecksumIEEE(h))
	return append(h, 1, 0, 0, 'x', 0, 0, 0, 0)
}
