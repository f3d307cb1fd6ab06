package symbol

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/atomicfile"
)

// tableCache keeps tables on disk, a file per build-id:
//
//	+-------+--------+-------+----------------------------------------+
//	| magic | crc32c | flags | parts x (kind, key, length, content)   |
//	+-------+--------+-------+----------------------------------------+
//
// The checksum covers all behind it. A file that is damaged, or of another
// version, counts as missing and is replaced. Files are put in place as a whole;
// those not used for longest go when the directory has more than its bound.
type tableCache struct {
	dir   string
	bytes int64
}

const (
	cacheMagic  = "atys names 2\n\x00\x00\x00"
	cacheHeader = len(cacheMagic) + 4
	cacheSuffix = ".names"

	partFunctions = 1
	partIndex     = 2
	partUnit      = 3
)

// Build-ids become file names.
var cacheName = regexp.MustCompile(`^[0-9a-z][0-9a-z-]{1,160}$`)

func newTableCache(dir string, bytes int64) *tableCache {
	return &tableCache{dir: dir, bytes: bytes}
}

func (c *tableCache) path(id string) string {
	if c.dir == "" || !cacheName.MatchString(id) {
		return ""
	}
	return filepath.Join(c.dir, id+cacheSuffix)
}

// load maps the tables of a build-id; false if they are not there. Of what is
// mapped only what is asked for takes memory, which the kernel can take back.
func (c *tableCache) load(id string) (tables, bool) {
	path := c.path(id)
	if path == "" {
		return tables{}, false
	}
	data, err := mapFile(path, c.bytes)
	if err != nil {
		return tables{}, false
	}
	t, ok := decodeTables(data)
	t.mapped = data
	if !ok {
		t.release()
		return tables{}, false
	}
	t.rest()          // the checksum touched all of it
	now := time.Now() // the file system's clock, not one to be injected
	os.Chtimes(path, now, now)
	return t, true
}

// mapFile maps a file that nobody writes: files here are replaced as a whole.
func mapFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%q has more than %d bytes", path, limit)
	}
	return unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
}

// save writes the tables of a build-id, then makes room.
func (c *tableCache) save(id string, t tables) error {
	path := c.path(id)
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, bytes.NewReader(encodeTables(t))); err != nil {
		return err
	}
	return c.makeRoom()
}

// makeRoom removes the files not used for longest. Leftovers of a crash are
// among them.
func (c *tableCache) makeRoom() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var files []os.FileInfo
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, f := range files {
		if total <= c.bytes {
			break
		}
		if err := os.Remove(filepath.Join(c.dir, f.Name())); err == nil {
			total -= f.Size()
		}
	}
	return nil
}

func encodeTables(t tables) []byte {
	data := make([]byte, cacheHeader, int64(cacheHeader+64+len(t.functions)+len(t.index))+t.unitBytes)
	copy(data, cacheMagic)
	data = binary.LittleEndian.AppendUint32(data, t.flags)
	part := func(kind, key uint32, content []byte) {
		data = binary.LittleEndian.AppendUint32(data, kind)
		data = binary.LittleEndian.AppendUint32(data, key)
		data = binary.LittleEndian.AppendUint32(data, uint32(len(content)))
		data = append(data, content...)
	}
	part(partFunctions, 0, t.functions)
	part(partIndex, 0, t.index)
	for _, key := range slices.Sorted(maps.Keys(t.units)) {
		part(partUnit, key, t.units[key])
	}
	sum := crc32.Checksum(data[cacheHeader:], crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(data[len(cacheMagic):], sum)
	return data
}

// decodeTables gives tables that share the data's memory.
func decodeTables(data []byte) (t tables, ok bool) {
	if len(data) < cacheHeader+4 || !bytes.HasPrefix(data, []byte(cacheMagic)) ||
		crc32.Checksum(data[cacheHeader:], crc32.MakeTable(crc32.Castagnoli)) != u32(data, len(cacheMagic)) {
		return t, false
	}
	t.flags = u32(data, cacheHeader)
	for rest := data[cacheHeader+4:]; len(rest) > 0; {
		const head = 12
		n := u32(rest, 8)
		if len(rest) < head || int64(n) > int64(len(rest)-head) {
			return tables{}, false
		}
		content := rest[head : head+int(n) : head+int(n)]
		switch u32(rest, 0) {
		case partFunctions:
			t.functions = content
		case partIndex:
			t.index = content
		case partUnit:
			t.addUnit(u32(rest, 4), content)
		}
		rest = rest[head+int(n):]
	}
	return t, true
}
