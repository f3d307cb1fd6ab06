package v8

import (
	"sync"
	"weak"
)

// A shelf keeps what processes told of functions: lines of scripts, bytecode,
// code. Photographs refer to that weakly, or a host of many would be all that
// was ever read of them. While a process lives its Runtime keeps it too, and
// reads again what was dropped; what only the shelf has left is of functions and
// processes that are gone. It is bounded in bytes: what was not asked for in long
// falls out. The zero value is ready.
type shelf struct {
	mu         sync.Mutex // guards all below
	fresh, old map[sized]bool
	bytes      int // of fresh
}

// sized is a pointer to something that tells how many bytes it has, about.
type sized interface{ size() int }

// shelfHalf is for all processes together.
const shelfHalf = 8 << 20

// keep puts something on the shelf, or keeps it there for longer.
func (s *shelf) keep(what sized) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh[what] {
		return
	}
	n := what.size()
	if s.bytes+n > shelfHalf {
		s.old, s.fresh, s.bytes = s.fresh, nil, 0
	}
	if s.fresh == nil {
		s.fresh = map[sized]bool{}
	}
	s.fresh[what] = true
	s.bytes += n
}

// told keeps what its process told of a function.
func (s *shelf) told(f photographed) {
	s.script(f.lines)
	if f.unoptimised != nil {
		s.keep(f.unoptimised)
	}
}

// code keeps code, and the scripts that it holds on to.
func (s *shelf) code(c *code) {
	s.keep(c)
	s.script(c.function.lines)
	for i := range c.inlined {
		s.script(c.inlined[i].lines)
	}
}

func (s *shelf) script(lines *script) {
	if lines != nil {
		s.keep(lines)
	}
}

// kept is a photographed function in the album.
type kept struct {
	function
	file        string
	reused      bool
	lines       weak.Pointer[script]
	unoptimised weak.Pointer[unoptimised]
}

// keep puts a function into the album, and what was told of it on the shelf.
func (n *Namer) keep(what uint64, f photographed) {
	n.shelf.told(f)
	n.functions.Keep(what, kept{f.function, f.file, f.reused, weak.Make(f.lines), weak.Make(f.unoptimised)})
}

// find finds a function, with what is left of all that was told of it.
func (n *Namer) find(what uint64) (photographed, bool) {
	k, ok := n.functions.Find(what)
	if !ok {
		return photographed{}, false
	}
	f := photographed{k.function, k.file, k.reused, k.lines.Value(), k.unoptimised.Value()}
	n.shelf.told(f)
	return f, true
}

// keepCode puts the code of a function that a sample saw at a pc into its album.
func (n *Namer) keepCode(what, pc uint64, c *code) {
	n.shelf.code(c)
	n.codes.Keep(placeOf(what, pc), weak.Make(c))
}

// findCode is code that was seen at a pc before; nil where none was, or it has
// fallen out.
func (n *Namer) findCode(what, pc uint64) *code {
	k, _ := n.codes.Find(placeOf(what, pc))
	c := k.Value()
	if c == nil || pc < c.begin || pc >= c.end {
		return nil
	}
	n.shelf.code(c)
	return c
}

// What the smaller parts have, with their place in maps and slices.
const (
	partBytes    = 32
	locatedBytes = 128
)

func (s *script) size() int { return locatedBytes + len(s.file) + 4*cap(s.ends) }

func (u *unoptimised) size() int { return locatedBytes + len(u.positions.table) + len(u.code) }

func (c *code) size() int {
	n := 2*locatedBytes + len(c.positions.table) + partBytes*(len(c.calls)+len(c.safepoints))
	for i := range c.inlined {
		n += locatedBytes + len(c.inlined[i].name)
	}
	for _, all := range c.callers {
		n += partBytes * (1 + len(all))
	}
	return n
}
