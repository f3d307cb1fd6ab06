package main

import (
	"bytes"
	"crypto/rand"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/unwind/cfi"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// A carrier is a file that exists on this machine, of which copies are made. Copies
// differ in their build-id, so that nothing is shared between them, and have
// leaves: loops written over instructions at some places, where a thread can stand.
type carrier struct {
	path   string
	image  []byte // with leaves
	note   int    // where the build-id lies in it
	size   int    // of the build-id
	code   []elf.ProgHeader
	rows   int
	leaves []place
	calls  []place
}

// place is a file offset, and how many words its frame has.
type place struct {
	offset uint64
	words  int
}

const (
	// leastRows is what a carrier has at least.
	leastRows = 100_000
	// frameWords bounds the frames that chains are made of.
	frameWords = 24
	maxLeaves  = 1000
)

// leafLoop counts rcx down and goes where rdx says.
var leafLoop = []byte{0x48, 0xff, 0xc9, 0x75, 0xfb, 0xff, 0xe2}

// leafAt is how far behind the beginning of a row a leaf is written.
const leafAt = 4

// readCarrier makes a carrier of a file, unless it has few rows or no build-id.
func readCarrier(path string, r *mathrand.Rand) (*carrier, error) {
	image, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &carrier{path: path, image: image}
	f, err := binfile.New(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return nil, err
	}
	if err := c.findNote(f.ELF); err != nil {
		return nil, err
	}
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			c.code = append(c.code, p.ProgHeader)
		}
	}
	before, err := cfi.Build(f.ELF)
	if err != nil {
		return nil, err
	}
	if c.rows = len(before.Rows); c.rows < leastRows {
		return nil, fmt.Errorf("%d rows", c.rows)
	}
	c.choose(before, r)
	for _, l := range c.leaves {
		copy(c.image[l.offset:], leafLoop)
	}
	return c, c.check(f)
}

// check leaves out the places that have other rows now that there are leaves.
func (c *carrier) check(f *binfile.File) error {
	after, err := cfi.Build(f.ELF)
	if err != nil {
		return err
	}
	right := func(places []place) (kept []place) {
		for _, p := range places {
			if words, ok := frameOf(after, p.offset); ok && words == p.words {
				kept = append(kept, p)
			}
		}
		return kept
	}
	if c.leaves, c.calls = right(c.leaves), right(c.calls); len(c.leaves) < 10 || len(c.calls) < 1000 {
		return errors.New("too few places to stand")
	}
	return nil
}

// frameOf is how many words the frame has at a file offset, where its rule is that
// the frame's address is so far above the stack pointer.
func frameOf(t *rows.Table, offset uint64) (words int, ok bool) {
	r, ok := t.Find(uint32(offset))
	if !ok || r.Type() != rows.SP || r.CFA() < 1 || r.CFA() > frameWords || r.RBP() > rows.RBPMax || uint32(r.RBP()) > r.CFA() {
		return 0, false
	}
	return int(r.CFA()), true
}

// choose finds places where chains may be: rows that hold for long enough.
func (c *carrier) choose(t *rows.Table, r *mathrand.Rand) {
	for i := range len(t.Rows) - 1 {
		from, to := uint64(t.Rows[i].Offset()), uint64(t.Rows[i+1].Offset())
		words, ok := frameOf(t, from)
		if !ok || to-from < 16 || !c.inCode(from, to) {
			continue
		}
		if to-from >= 32 && r.IntN(50) == 0 && len(c.leaves) < maxLeaves {
			c.leaves = append(c.leaves, place{from + leafAt, words})
		} else {
			c.calls = append(c.calls, place{from + 8, words})
		}
	}
}

func (c *carrier) inCode(from, to uint64) bool {
	for _, p := range c.code {
		if from >= p.Off && to <= p.Off+p.Filesz {
			return true
		}
	}
	return false
}

// findNote finds where the build-id lies.
func (c *carrier) findNote(f *elf.File) error {
	s := f.Section(".note.gnu.build-id")
	if s == nil || s.Size < 16+8 {
		return errors.New("no build-id")
	}
	c.note, c.size = int(s.Offset)+16, int(s.Size)-16
	return nil
}

// file is a copy of a carrier, and the chains that are run in it.
type file struct {
	*carrier
	buildID  string
	path     string
	plan     string
	chains   map[string]bool // whole ones, as chainKey has them
	prefixes map[string]bool // what cut ones may be
}

// copyTo makes a copy and its plan.
func (c *carrier) copyTo(path string, functions, chains int, r *mathrand.Rand) (*file, error) {
	f := &file{carrier: c, path: path, plan: path + ".plan", chains: map[string]bool{}, prefixes: map[string]bool{}}
	id := make([]byte, c.size)
	rand.Read(id)
	f.buildID = fmt.Sprintf("%x", id)
	image := bytes.Clone(c.image)
	copy(image[c.note:], id)
	if err := os.WriteFile(path, image, 0o755); err != nil {
		return nil, err
	}
	hot := make([]place, functions)
	for i := range hot {
		hot[i] = c.calls[r.IntN(len(c.calls))]
	}
	words := []uint64{uint64(len(c.code))}
	const page = 4095
	for _, p := range c.code {
		from := p.Off &^ page
		words = append(words, from, (p.Off+p.Filesz-from+page)&^page)
	}
	words = append(words, uint64(chains))
	for range chains {
		words = f.addChain(words, hot, r)
	}
	var plan bytes.Buffer
	if err := binary.Write(&plan, binary.LittleEndian, words); err != nil {
		return nil, err
	}
	return f, os.WriteFile(f.plan, plan.Bytes(), 0o600)
}

// Words of a plan that are addresses; see testdata/driver.c.
const (
	wordCode      = 1 << 62
	wordOutermost = 1 << 61
)

// addChain lays a chain of calls out as a stack.
func (f *file) addChain(words []uint64, hot []place, r *mathrand.Rand) []uint64 {
	leaf := f.leaves[r.IntN(len(f.leaves))]
	offsets := []uint64{leaf.offset}
	var stack []uint64
	at := leaf
	for range 5 + r.IntN(36) {
		next := hot[r.IntN(len(hot))]
		stack = appendFrame(stack, at.words, wordCode|next.offset)
		offsets = append(offsets, next.offset-1)
		at = next
	}
	stack = appendFrame(stack, at.words, wordOutermost)
	words = append(words, leaf.offset, uint64(len(stack)))
	f.chains[chainKey(offsets)] = true
	for n := range offsets {
		f.prefixes[chainKey(offsets[:n+1])] = true
	}
	return append(words, stack...)
}

// appendFrame adds a frame whose last word is where it returns to. What else is on
// the stack looks like nothing that could be followed.
func appendFrame(stack []uint64, words int, returns uint64) []uint64 {
	for i := range words - 1 {
		stack = append(stack, uint64(i))
	}
	return append(stack, returns)
}

// chainKey is a chain as a key: the leaf by where it begins.
func chainKey(offsets []uint64) string {
	var b []byte
	for _, o := range offsets {
		b = binary.LittleEndian.AppendUint32(b, uint32(o))
	}
	return string(b)
}
