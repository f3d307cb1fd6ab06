package unwind

import (
	"crypto/sha256"
	"encoding/binary"
	"os"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// What is asked of a file's content.
const (
	aboutRows = "rows"
	aboutAll  = "all"
)

// keptTables are tables that were built before, on disk:
//
//	+------+------+-------------------+
//	| runs | zero | table (rows.Table.Encode)|
//	+------+------+-------------------+
//	  32 bits each
//
// runs are those of built.
type keptTables struct {
	disk  *diskcache.Cache // nil: none
	maker string           // this program: another version may build other tables
}

const keptHeader = 8

// builtTable is a file's table, just built or mapped.
type builtTable struct {
	*rows.Table
	runs  uint32           // Language.runs of the runtimes in the file
	entry *diskcache.Entry // what its rows and index are in; nil: of its own
}

// close ends the use of the table's rows and index.
func (t *builtTable) close() {
	if t.entry != nil {
		t.entry.Close()
		t.entry = nil
	}
}

func newKeptTables(disk *diskcache.Cache) (keptTables, error) {
	if disk == nil {
		return keptTables{}, nil
	}
	maker, err := binfile.Own()
	return keptTables{disk: disk, maker: maker}, err
}

// image tells what a file holds, as far as its rows go; "" where it cannot be
// known, or the file is too large to be looked at.
func (k *keptTables) image(handle *os.File) diskcache.Content {
	return k.content(handle, aboutRows)
}

func (k *keptTables) content(handle *os.File, question string) diskcache.Content {
	content, err := k.disk.Content(handle, question, func() (sum [sha256.Size]byte, err error) {
		info, err := handle.Stat()
		if err != nil {
			return sum, err
		}
		if f, err := binfile.New(handle, info.Size()); err == nil && question == aboutRows {
			return f.DigestCode()
		}
		return binfile.DigestAll(handle, info.Size())
	})
	if err != nil {
		return ""
	}
	return content
}

func (k *keptTables) key(image diskcache.Content) diskcache.Key {
	return diskcache.KeyOf(aboutRows, k.maker, string(image))
}

// open maps the table of an image. The digest in it covers the build-id as well.
func (k *keptTables) open(image diskcache.Content) (*builtTable, bool) {
	if image == "" {
		return nil, false
	}
	entry, ok := k.disk.Get(diskcache.Rows(), k.key(image))
	if !ok {
		return nil, false
	}
	t := &builtTable{entry: entry}
	if len(entry.Content) >= keptHeader && binary.LittleEndian.Uint32(entry.Content[4:]) == 0 {
		t.runs = binary.LittleEndian.Uint32(entry.Content)
		var err error
		if t.Table, err = rows.Decode(entry.Content[keptHeader:]); err == nil {
			return t, true
		}
	}
	t.close()
	return nil, false
}

// save keeps a table that was built of a file, if that is still what it was.
func (k *keptTables) save(handle *os.File, image diskcache.Content, t *builtTable) error {
	if image == "" || !k.disk.Unchanged(handle, aboutRows, image) {
		return nil
	}
	header := make([]byte, keptHeader)
	binary.LittleEndian.PutUint32(header, t.runs)
	return k.disk.Put(diskcache.Rows(), k.key(image), append([][]byte{header}, t.Encode()...)...)
}

// buildTable opens or builds the table of a file of which image is known.
func (k *keptTables) buildTable(handle *os.File, image diskcache.Content) (*builtTable, error) {
	if t, ok := k.open(image); ok {
		return t, nil
	}
	table, runs, err := buildTable(handle)
	if err != nil {
		return nil, err
	}
	t := &builtTable{Table: table, runs: runs}
	_ = k.save(handle, image, t) // the cache says so, once
	return t, nil
}
