package unwind

import (
	"fmt"
	"os"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/diskcache"
)

// claims tell files with the same build-id apart. The first one has it, and so
// have those that hold the same and that the same user can change. All others get
// a qualified one: else they could decide on how the first one's code is called,
// wherever windows are kept. Who was first is kept on disk as well, so that it
// does not depend on who is found first after a restart.
type claims map[string]claim

type claim struct {
	first   fileID
	content diskcache.Content // of all the first one holds; "": not known
}

// maxClaims bounds the build-ids that are remembered beyond those in use.
const maxClaims = 1 << 14

// claim registers an executable's build-id. If another file has it already, this
// one is told apart by where it is until examine knows more.
func (u *Unwinder) claim(e *executable) {
	if u.claims == nil {
		u.claims = claims{}
	}
	c, taken := u.claims[e.buildID]
	if taken && c.first != e.file {
		e.qualify(e.buildID)
		return
	}
	if len(u.claims) >= maxClaims {
		u.trimClaims()
	}
	u.claims[e.buildID] = claim{first: e.file, content: c.content}
}

// qualify tells an executable apart by where it is, until examine knows more.
func (e *executable) qualify(id string) {
	e.copies = id
	e.buildID = binfile.Qualify(id, fmt.Sprintf("%x.%x", e.file.major<<20|e.file.minor, e.file.inode))
}

// trimClaims forgets the build-ids of files that are gone.
func (u *Unwinder) trimClaims() {
	for id, c := range u.claims {
		if u.executables.byFile[c.first] == nil {
			delete(u.claims, id)
		}
	}
}

// examination is what the content of an executable, and of the first one with its
// build-id, tells.
type examination struct {
	image diskcache.Content
	all   diskcache.Content // "" where it is not needed
	// owner is the image of who had the build-id first on this machine; "": not known.
	owner diskcache.Content
	first claim
	usurp bool // the one that was found first had it not first on this machine
}

// examine finds out what an executable holds, what its build-id is, and whether
// its rows are loaded already for another one. The lock is held, and dropped
// while files are read.
func (u *Unwinder) examine(e *executable) (shared bool) {
	handle, copies := e.handle, e.copies
	x := examination{image: e.image, first: u.claims[copies]}
	var firstHandle *os.File
	if first := u.executables.byFile[x.first.first]; copies != "" && first != nil {
		firstHandle = first.handle
	}
	id := binfile.Unqualified(e.buildID)
	u.mu.Unlock()
	if x.image == "" {
		x.image = u.kept.image(handle)
	}
	firstImage := x.image
	if firstHandle != nil {
		firstImage = u.kept.image(firstHandle)
	}
	x.owner = u.kept.disk.Claim(id, firstImage)
	if copies != "" || !x.rightful() {
		x.all = u.kept.content(handle, aboutAll)
	}
	if firstHandle != nil {
		x.usurp = x.owner != "" && x.rightful() && firstImage != x.owner
		if x.first.content == "" && !x.usurp {
			x.first.content = u.kept.content(firstHandle, aboutAll)
		}
	}
	u.mu.Lock()
	if e.handle != handle { // it was forgotten, or another one is tried
		return false
	}
	e.image = x.image
	u.settle(e, id, x)
	return e.table == nil && u.share(e)
}

// rightful tells whether an executable may have its build-id unqualified, as far
// as those go that were here before.
func (x *examination) rightful() bool { return x.owner == "" || x.owner == x.image }

// settle gives an executable the build-id by which its places are named.
func (u *Unwinder) settle(e *executable, id string, x examination) {
	found := e.copies == "" // first
	e.copies = ""
	c, taken := u.claims[id]
	switch {
	case !x.rightful():
		if found && taken && c.first == e.file {
			delete(u.claims, id)
		}
	case found:
		return
	case x.usurp || !taken:
		if first := u.executables.byFile[c.first]; taken && first != nil {
			first.qualify(id)
		}
		u.claims[id] = claim{first: e.file, content: x.all}
		e.buildID = id
		return
	case c.first == x.first.first:
		u.claims[id] = x.first
		if x.all != "" && x.all == x.first.content {
			e.buildID = id
			return
		}
	}
	e.qualify(id)
	e.copies = ""
	if x.all != "" {
		e.buildID = binfile.Qualify(id, string(x.all[:16]))
	}
}
