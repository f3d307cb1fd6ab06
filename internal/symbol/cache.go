package symbol

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
)

// tableCache keeps tables on disk, for each content of a file one entry:
//
//	+-------+----------------------------------------+
//	| flags | parts x (kind, key, length, content)   |
//	+-------+----------------------------------------+
//
// A build-id would not do: anybody can copy one, and would decide on the names of
// somebody else's code.
type tableCache struct {
	disk  *diskcache.Cache // nil: nothing is kept
	maker string           // this program: another version may give other names
}

const (
	partFunctions = 1
	partIndex     = 2
	partUnit      = 3
	partSource    = 4
)

// debugSource is a separate file that tables were made from.
type debugSource struct {
	path  string
	stamp string // what it was then; "": that cannot be told
}

func newTableCache(disk *diskcache.Cache) *tableCache {
	if disk == nil {
		return &tableCache{}
	}
	maker, err := binfile.Own()
	if err != nil {
		return &tableCache{}
	}
	return &tableCache{disk: disk, maker: maker}
}

// content tells what an open file holds; "" where that cannot be known.
func (c *tableCache) content(f *binfile.File) diskcache.Content {
	if c.disk == nil || f.OSFile() == nil {
		return ""
	}
	content, err := c.disk.Content(f.OSFile(), wholeFile, f.Digest)
	if err != nil {
		return ""
	}
	return content
}

// wholeFile is what names are made from: symbols, debug information, strings.
const wholeFile = "all"

func (c *tableCache) key(id string, content diskcache.Content) diskcache.Key {
	return diskcache.KeyOf("names", c.maker, id, string(content))
}

// load maps the tables of a file; false if they are not there, or a debug file
// that they were made from is another one today. Of what is mapped only what is
// asked for takes memory, which the kernel can take back.
func (c *tableCache) load(id string, content diskcache.Content) (tables, bool) {
	if content == "" {
		return tables{}, false
	}
	entry, ok := c.disk.Get(diskcache.Names(), c.key(id, content))
	if !ok {
		return tables{}, false
	}
	t, ok := decodeTables(entry.Content)
	t.mapped = entry
	if !ok || slices.ContainsFunc(t.sources, debugSource.changed) {
		t.release()
		return tables{}, false
	}
	t.rest() // the checksum touched all of it
	return t, true
}

// changed tells whether another file is where a debug file was. One that is gone
// does no harm: what was read of it is still right.
func (s debugSource) changed() bool {
	f, _, err := untrusted{path: s.path}.open()
	if os.IsNotExist(err) {
		return false
	}
	if err != nil {
		return true
	}
	defer f.Close()
	stamp, err := diskcache.Stamp(f)
	return err != nil || stamp != s.stamp
}

// save writes the tables of a file.
func (c *tableCache) save(id string, content diskcache.Content, t tables) error {
	if content == "" {
		return nil
	}
	for _, s := range t.sources {
		if s.stamp == "" {
			return nil
		}
	}
	return c.disk.Put(diskcache.Names(), c.key(id, content), encodeTables(t))
}

// addSource records a separate file that the tables are made from. It is
// an error if another one was there before.
func (t *tables) addSource(f *binfile.File) error {
	if f == nil || f.OSFile() == nil {
		return nil
	}
	s := debugSource{path: f.OSFile().Name()}
	s.stamp, _ = diskcache.Stamp(f.OSFile()) // without one, the tables are not kept
	for _, old := range t.sources {
		if old.path == s.path {
			if old != s {
				return fmt.Errorf("debug file %q: %w", s.path, diskcache.ErrChanged)
			}
			return nil
		}
	}
	t.sources = append(t.sources, s)
	return nil
}

func encodeTables(t tables) []byte {
	data := make([]byte, 0, int64(64+len(t.functions)+len(t.index))+t.unitBytes)
	data = binary.LittleEndian.AppendUint32(data, t.flags)
	part := func(kind, key uint32, content []byte) {
		data = binary.LittleEndian.AppendUint32(data, kind)
		data = binary.LittleEndian.AppendUint32(data, key)
		data = binary.LittleEndian.AppendUint32(data, uint32(len(content)))
		data = append(data, content...)
	}
	for _, s := range t.sources {
		part(partSource, uint32(len(s.stamp)), []byte(s.stamp+s.path))
	}
	part(partFunctions, 0, t.functions)
	part(partIndex, 0, t.index)
	for _, key := range slices.Sorted(maps.Keys(t.units)) {
		part(partUnit, key, t.units[key])
	}
	return data
}

// decodeTables gives tables that share the data's memory.
func decodeTables(data []byte) (t tables, ok bool) {
	if len(data) < 4 {
		return t, false
	}
	t.flags = u32(data, 0)
	for rest := data[4:]; len(rest) > 0; {
		const head = 12
		n := u32(rest, 8)
		if len(rest) < head || int64(n) > int64(len(rest)-head) {
			return tables{}, false
		}
		content := rest[head : head+int(n) : head+int(n)]
		key := u32(rest, 4)
		switch u32(rest, 0) {
		case partSource:
			if int64(key) > int64(len(content)) {
				return tables{}, false
			}
			t.sources = append(t.sources, debugSource{stamp: string(content[:key]), path: string(content[key:])})
		case partFunctions:
			t.functions = content
		case partIndex:
			t.index = content
		case partUnit:
			t.addUnit(key, content)
		}
		rest = rest[head+int(n):]
	}
	return t, true
}
