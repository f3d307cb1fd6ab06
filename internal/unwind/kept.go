package unwind

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/unwind/cfi"
)

// What is asked of a file's content.
const (
	aboutRows = "rows"
	aboutAll  = "all"
)

// keptTables are tables that were built before, on disk:
//
//	+------+------+-------------------+
//	| runs | zero | table (cfi.Encode)|
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
	*cfi.Table
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
		if t.Table, err = cfi.Decode(entry.Content[keptHeader:]); err == nil {
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

// claims tell files with the same build-id apart. The first one has it; others
// too, if they hold the same and the same user can change them. All others get
// another name for their places: else they could decide on how the first one's
// code is called.
type claims map[string]claim

type claim struct {
	first   fileID
	content diskcache.Content // "": not known
}

// maxClaims bounds the build-ids that are remembered beyond those in use.
const maxClaims = 1 << 14

// claim registers an executable's build-id. If another file has it already, this
// one is told apart until settle knows more.
func (u *Unwinder) claim(e *executable) {
	if u.claims == nil {
		u.claims = claims{}
	}
	c, taken := u.claims[e.buildID]
	if !taken || c.first == e.file {
		if len(u.claims) >= maxClaims {
			u.trimClaims()
		}
		u.claims[e.buildID] = claim{first: e.file, content: c.content}
		return
	}
	e.copies = e.buildID
	e.buildID = binfile.Qualify(e.buildID, fmt.Sprintf("%x.%x", e.file.major<<20|e.file.minor, e.file.inode))
}

// trimClaims forgets the build-ids of files that are gone.
func (u *Unwinder) trimClaims() {
	for id, c := range u.claims {
		if u.executables.byFile[c.first] == nil {
			delete(u.claims, id)
		}
	}
}

// examine finds out what an executable holds, and whether that is loaded already
// for another one. The lock is held, and dropped while files are read.
func (u *Unwinder) examine(e *executable) (shared bool) {
	handle, known, copies := e.handle, e.image, e.copies
	first := u.claims[copies]
	var firstHandle *os.File
	if other := u.executables.byFile[first.first]; copies != "" && first.content == "" && other != nil {
		firstHandle = other.handle
	}
	u.mu.Unlock()
	if known == "" {
		known = u.kept.image(handle)
	}
	all := diskcache.Content("")
	if copies != "" {
		all = u.kept.content(handle, aboutAll)
	}
	if firstHandle != nil {
		first.content = u.kept.content(firstHandle, aboutAll)
	}
	u.mu.Lock()
	if e.handle != handle { // it was forgotten, or another one is tried
		return false
	}
	e.image = known
	if copies != "" {
		u.settle(e, all, first)
	}
	return e.table == nil && u.share(e)
}

// settle gives an executable whose build-id another file had before the one that
// its places are named by.
func (u *Unwinder) settle(e *executable, content diskcache.Content, first claim) {
	id := e.copies
	e.copies = ""
	if c, ok := u.claims[id]; ok && c.first == first.first {
		u.claims[id] = first
	}
	switch {
	case content == "": // it stays told apart by where it is
	case content == first.content:
		e.buildID = id
	default:
		e.buildID = binfile.Qualify(id, string(content[:16]))
	}
}
