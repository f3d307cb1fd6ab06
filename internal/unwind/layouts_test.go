package unwind

import (
	"math/rand/v2"
	"testing"

	"atys.dev/atys/internal/proc/lifecycle"
)

// Whatever is mapped over whatever, an address belongs to what was mapped there
// last, at the right offset, and each file is counted once per area.
func TestInsert(t *testing.T) {
	const pages = 200
	r := rand.New(rand.NewPCG(5, 6))
	files := []*executable{nil, {id: 1}, {id: 2}, {id: 3}}
	type cell struct {
		file   *executable
		offset uint64
	}
	for range 200 {
		var want [pages]cell
		var mapped [pages]bool
		s, l := layouts{tables: &tables{}}, &layout{}
		for range 30 {
			start := uint64(r.IntN(pages))
			end := min(start+1+uint64(r.IntN(20)), pages)
			a := area{start: start << 12, end: end << 12, offset: uint64(r.IntN(50)) << 12, executable: files[r.IntN(len(files))]}
			s.insert(l, a)
			for p := start; p < end; p++ {
				want[p], mapped[p] = cell{a.executable, a.offset + (p-start)<<12}, true
			}
		}
		uses := map[*executable]int{}
		var got [pages]bool
		for i, a := range l.areas {
			if i > 0 && a.start < l.areas[i-1].end {
				t.Fatalf("areas overlap or are not sorted: %v", l.areas)
			}
			uses[a.executable]++
			for p := a.start >> 12; p < a.end>>12; p++ {
				got[p] = true
				if c := (cell{a.executable, a.offset + p<<12 - a.start}); c != want[p] {
					t.Fatalf("page %d is %v, want %v", p, c, want[p])
				}
			}
		}
		if got != mapped {
			t.Fatal("mapped pages are missing, or unmapped ones there")
		}
		for _, f := range files[1:] {
			if f.uses != uses[f] {
				t.Fatalf("file %d is counted %d times, used %d times", f.id, f.uses, uses[f])
			}
			f.uses = 0
		}
	}
}

func TestFileIdentity(t *testing.T) {
	a := lifecycle.Mapping{Major: 8, Minor: 1, Inode: 77, Path: "/usr/bin/a"}
	renamed := a
	renamed.Path = "/usr/bin/a (deleted)"
	if fileOf(a) != fileOf(renamed) {
		t.Error("a file is another one after it was deleted")
	}
	other := a
	other.Minor = 2
	if fileOf(a) == fileOf(other) {
		t.Error("files of two devices are one")
	}
	if fileOf(lifecycle.Mapping{Path: "[vdso]"}) == fileOf(lifecycle.Mapping{Path: "[other]"}) {
		t.Error("images without inodes are one")
	}
}

func TestDecodeFrame(t *testing.T) {
	for word, want := range map[uint64]Frame{
		5<<frameOffsetBits | 0x1234:       {Executable: 5, Offset: 0x1234},
		frameAnonymous | 0x7fff12345678:   {Offset: 0x7fff12345678},
		frameUnmapped | 0x7fff12345678:    {Offset: 0x7fff12345678, Unmapped: true},
		0xffffffff81000000:                {Offset: 0xffffffff81000000, Kernel: true},
		1<<frameOffsetBits | (1<<40 - 1):  {Executable: 1, Offset: 1<<40 - 1},
		16383<<frameOffsetBits | 0xabcdef: {Executable: 16383, Offset: 0xabcdef},
	} {
		if got := DecodeFrame(word); got != want {
			t.Errorf("%#x is %+v, want %+v", word, got, want)
		}
	}
}
