package replay

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/unwind/paging"
)

// Image is what a walk looks at: one thread at one instant.
type Image struct {
	About     string
	Registers [21]uint64 // struct pt_regs
	Mappings  []Mapping  // sorted by start
	Files     []File
	Memory    []Piece // where pieces overlap, the last counts

	ThreadPointer uint64            `json:",omitempty"`
	Runtimes      []Runtime         `json:",omitempty"` // that the process runs
	Names         map[string]string `json:",omitempty"` // of the frames recorded that only their process can name
}

// Runtime is what walks need to know of a language's runtime in the process.
type Runtime struct {
	Language   unwind.Language
	Parameters []byte // in the layout of its map
}

// The registers of Image that a walk starts with, and that tests set.
const (
	RegisterBP = 4
	RegisterIP = 16
	RegisterCS = 17
	RegisterSP = 19
)

// Mapping is code mapped into the process.
type Mapping struct {
	Start, End, Offset uint64
	File               int  `json:",omitempty"` // 1 is Files[0]; 0: memory without a file
	FramePointers      bool `json:",omitempty"` // such memory, whose maker keeps them
	Shared             bool `json:",omitempty"` // with other processes
}

// File is an executable's rows, as package cfi lays them out.
type File struct {
	Name          string
	Rows          []uint64
	Index         []uint32
	First         uint32
	Shift         uint32
	Absent        bool              `json:",omitempty"` // its table is not loaded
	Evicted       []int             `json:",omitempty"` // chunks of it that are not loaded
	Replaced      bool              `json:",omitempty"` // its slots were given to other chunks, which its cells do not say yet
	FramePointers bool              `json:",omitempty"` // its code is known to keep them
	Runs          []unwind.Language `json:",omitempty"` // whose runtimes it holds
	Names         map[uint64]string `json:",omitempty"` // functions by file offset, of the frames recorded
}

// Piece is memory of the process.
type Piece struct {
	Start uint64
	Bytes []byte
}

// Flags of unwind.h.
const (
	mappingFramePointers    = 1
	mappingShared           = 2
	executableLoaded        = 1
	executableFramePointers = 2
)

// cellEvicted is CELL_EVICTED.
const cellEvicted = 1 << 16

// executableWords is how many u32 struct executable has.
const executableWords = 6

// message is the image as replay.c reads it; every count is a u32, structures
// are those of unwind.h, executable 0 is none:
//
//	'I' | count, struct mapping... | count, struct executable... | count, rows u64...
//	    | count, struct cell...
//	    | flags of the languages, count, each: number u32, size u32, parameters
//	    | count of pieces, each: start u64, size u32, bytes
func (i *Image) message() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte{'I'}, uint32(len(i.Mappings)))
	for _, m := range i.Mappings {
		flags := uint32(0)
		if m.FramePointers {
			flags = mappingFramePointers
		}
		if m.Shared {
			flags |= mappingShared
		}
		for _, v := range []uint64{m.Start, m.End, m.Offset, uint64(flags)<<32 | uint64(m.File)} {
			b = le.AppendUint64(b, v)
		}
	}
	b = i.appendTables(b)
	var languages uint32
	for _, r := range i.Runtimes {
		languages |= runs(r.Language)
	}
	b = le.AppendUint32(b, languages)
	b = le.AppendUint32(b, uint32(len(i.Runtimes)))
	for _, r := range i.Runtimes {
		b = le.AppendUint32(b, uint32(r.Language))
		b = le.AppendUint32(b, uint32(len(r.Parameters)))
		b = append(b, r.Parameters...)
	}
	b = le.AppendUint32(b, uint32(len(i.Memory)))
	for _, p := range i.Memory {
		b = p.append(b)
	}
	return b
}

// appendTables loads the files' rows as package unwind does, and adds what that
// has written: executables, rows and cells.
func (i *Image) appendTables(b []byte) []byte {
	le := binary.LittleEndian
	chunks := 0
	for _, f := range i.Files {
		chunks += (len(f.Rows) + paging.SlotRows - 1) / paging.SlotRows
	}
	rows, cells := make([]uint64, (2*chunks+8)*paging.SlotWords), make([]uint64, chunks)
	cache := paging.New(paging.Options{Rows: rows, Cells: cells, Packed: math.MaxInt64, Now: func() time.Duration { return time.Hour }})
	b = le.AppendUint32(b, uint32(len(i.Files)+1))
	b = append(b, make([]byte, executableWords*4)...)
	for n, f := range i.Files {
		flags := uint32(executableLoaded)
		if f.Absent {
			flags = 0
		}
		if f.FramePointers {
			flags |= executableFramePointers
		}
		for _, l := range f.Runs {
			flags |= runs(l)
		}
		t, err := cache.Add(paging.Pack(f.Rows))
		if err != nil {
			panic(fmt.Sprintf("file %d of the image: %v", n, err))
		}
		held := cache.Stats().Slots
		for cell := range f.Rows {
			if cell%paging.SlotRows == 0 && !slices.Contains(f.Evicted, cell/paging.SlotRows) {
				cache.Demand(t, uint32(f.Rows[cell]>>32))
			}
		}
		first, count := t.First()
		for slot := held; f.Replaced && slot < cache.Stats().Slots; slot++ {
			rows[(slot+1)*paging.SlotWords] += 1 << 32 // slots are given away from the first on
		}
		for _, chunk := range f.Evicted {
			cells[int(first)+chunk] |= cellEvicted << 32
		}
		for _, v := range [executableWords]uint32{first, count, 0, 0, flags, 0} {
			b = le.AppendUint32(b, v)
		}
	}
	for _, words := range [][]uint64{rows, cells} {
		for len(words) > 0 && words[len(words)-1] == 0 {
			words = words[:len(words)-1]
		}
		b = le.AppendUint32(b, uint32(len(words)))
		for _, v := range words {
			b = le.AppendUint64(b, v)
		}
	}
	return b
}

func (p Piece) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Start)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Bytes)))
	return append(b, p.Bytes...)
}

// runs is RUNS of tables.h.
func runs(l unwind.Language) uint32 { return 1 << (8 + l) }

// maxImage bounds what Read takes from a file: recorded images have some 100 KB.
const maxImage = 64 << 20

// Read reads an image that Write wrote: JSON in gzip.
func Read(r io.Reader) (*Image, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	i := &Image{}
	if err := json.NewDecoder(io.LimitReader(z, maxImage)).Decode(i); err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	return i, nil
}

// Write writes an image.
func (i *Image) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	if err := json.NewEncoder(z).Encode(i); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return z.Close()
}
