package binfile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// compressed makes the content of a compressed section.
func compressed(t *testing.T, kind elf.CompressionType, content []byte) []byte {
	t.Helper()
	packed := bytes.NewBuffer(slices.Concat(binary.LittleEndian.AppendUint32(nil, uint32(kind)), make([]byte, 20)))
	switch kind {
	case elf.COMPRESS_ZLIB:
		w := zlib.NewWriter(packed)
		w.Write(content)
		w.Close()
	case elf.COMPRESS_ZSTD:
		w, err := zstd.NewWriter(packed)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(content)
		w.Close()
	}
	return packed.Bytes()
}

// largeDebug makes a file with a compressed .debug_info, of which the file says that
// it has a size, and a hole behind its content.
func largeDebug(t *testing.T, packed []byte, size int) *File {
	t.Helper()
	return withSection(t, ".debug_info", elf.SHF_COMPRESSED, packed, size)
}

// mixed is content that packs as debug information does.
func mixed(n int) []byte {
	content := make([]byte, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < n; i += 10 {
		content[i] = byte(random.Uint32())
	}
	return content
}

// What unpacks to far more than it should is refused, however large the file says
// that it is.
func TestUnpackingIsBoundedByRatio(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, kind := range []elf.CompressionType{elf.COMPRESS_ZLIB, elf.COMPRESS_ZSTD} {
		f := largeDebug(t, compressed(t, kind, make([]byte, 2*ratioSlack)), 4<<30)
		var err error
		if n := allocated(func() { _, err = f.OpenSection(".debug_info") }); n > 32<<20 {
			t.Errorf("%v: %d bytes allocated", kind, n)
		}
		if err == nil || !strings.Contains(err.Error(), "become more than") {
			t.Errorf("%v: error %v", kind, err)
		}
		if n := f.unpacked.Load(); n != 0 {
			t.Errorf("%v: %d bytes count as open", kind, n)
		}
	}
	f := largeDebug(t, compressed(t, 77, nil), 100)
	if _, err := f.OpenSection(".debug_info"); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("error %v", err)
	}
}

// Sections that are open at once share what they may unpack to: on disk, and in
// memory where nobody can write.
func TestUnpackedSectionsShareRoom(t *testing.T) {
	content := mixed(3 * spoolBytes)
	packed := compressed(t, elf.COMPRESS_ZLIB, content)
	for folder, most := range map[string]int64{t.TempDir(): maxUnpacked, "/proc": maxInMemory} {
		t.Setenv("TMPDIR", folder)
		f := largeDebug(t, packed, len(packed))
		f.unpacked.Store(most - 7*spoolBytes)
		var open []*SectionReader
		for range 2 {
			s, err := f.OpenSection(".debug_info")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			open = append(open, s)
		}
		got := make([]byte, len(content))
		if n, _ := open[1].ReadAt(got, 0); n != len(content) || !bytes.Equal(got, content) {
			t.Errorf("TMPDIR=%s: %d bytes", folder, n)
		}
		if _, err := f.OpenSection(".debug_info"); err == nil || !strings.Contains(err.Error(), "the file's sections") {
			t.Errorf("TMPDIR=%s: error %v", folder, err)
		}
		open[0].Close()
		s, err := f.OpenSection(".debug_info")
		if err != nil {
			t.Fatalf("TMPDIR=%s: after another one was closed: %v", folder, err)
		}
		s.Close()
		open[1].Close()
		if n := f.unpacked.Load(); n != most-7*spoolBytes {
			t.Errorf("TMPDIR=%s: %d bytes count as open", folder, n-most+7*spoolBytes)
		}
	}
}

// Memory is taken where there is no folder to write to, for no other reason.
func TestNoMemoryInsteadOfDisk(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", "/"+strings.Repeat("x", 300))
	packed := compressed(t, elf.COMPRESS_ZLIB, mixed(2*spoolBytes))
	if _, err := largeDebug(t, packed, len(packed)).OpenSection(".debug_info"); err == nil {
		t.Error("a section was unpacked to memory")
	}
	t.Setenv("TMPDIR", dir)
	s, err := largeDebug(t, packed, len(packed)).OpenSection(".debug_info")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
