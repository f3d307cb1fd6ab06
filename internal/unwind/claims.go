package unwind

import (
	"fmt"

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
func (x *executables) claim(e *executable) {
	c, taken := x.claims[e.buildID]
	if taken && c.first != e.file {
		e.qualify(e.buildID)
		return
	}
	if len(x.claims) >= maxClaims {
		x.trimClaims()
	}
	x.claims[e.buildID] = claim{first: e.file, content: c.content}
}

// qualify tells an executable apart by where it is, until examine knows more.
func (e *executable) qualify(id string) {
	e.copies = id
	e.buildID = binfile.Qualify(id, fmt.Sprintf("%x.%x", e.file.major<<20|e.file.minor, e.file.inode))
}

// trimClaims forgets the build-ids of files that are gone.
func (x *executables) trimClaims() {
	for id, c := range x.claims {
		if x.byFile[c.first] == nil {
			delete(x.claims, id)
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

// rightful tells whether an executable may have its build-id unqualified, as far
// as those go that were here before.
func (x *examination) rightful() bool { return x.owner == "" || x.owner == x.image }

// settle gives an executable the build-id by which its places are named.
func (x *executables) settle(e *executable, id string, of examination) {
	found := e.copies == "" // first
	e.copies = ""
	c, taken := x.claims[id]
	switch {
	case !of.rightful():
		if found && taken && c.first == e.file {
			delete(x.claims, id)
		}
	case found:
		return
	case of.usurp || !taken:
		if first := x.byFile[c.first]; taken && first != nil {
			first.qualify(id)
		}
		x.claims[id] = claim{first: e.file, content: of.all}
		e.buildID = id
		return
	case c.first == of.first.first:
		x.claims[id] = of.first
		if of.all != "" && of.all == of.first.content {
			e.buildID = id
			return
		}
	}
	e.qualify(id)
	e.copies = ""
	if of.all != "" {
		e.buildID = binfile.Qualify(id, string(of.all[:16]))
	}
}
