package cfi

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrMachine says that a file is not for x86-64.
var ErrMachine = errors.New("not an x86-64 program or library")

// Table is how to unwind the code of one file.
type Table struct {
	// Rows are sorted by offset; each holds until the next one's.
	Rows []Row
	// Index has one entry per page of 1<<Shift bytes from First on, and one
	// more: the index of the last row at or before the page's start. A row
	// that holds in page i is one of Rows[Index[i]:Index[i+1]+1], which are at
	// most 256.
	Index []uint32
	// First is the file offset of the first page.
	First uint32
	// Shift is the binary logarithm of the page size: 4 to 12.
	Shift uint8
	// KeepsFramePointers is set where every piece of code in the file is known
	// to keep frame pointers: Go without C.
	KeepsFramePointers bool
	// Source names where the rows come from, best first: "eh_frame+plt".
	Source string
	// Unsupported counts, by reason, the rows and functions whose unwind
	// information cannot be expressed in full.
	Unsupported map[string]int
}

// Build makes the table of f. A file without any unwind information gives a
// table without rows; damaged information gives rows for what is sound.
func Build(f *elf.File) (*Table, error) {
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil, ErrMachine
	}
	t := &Table{Unsupported: map[string]int{}}
	im := newImage(f)
	x := &executor{unsupported: t.Unsupported}
	var sources []string
	var rows []Row
	lay := func(name string, more []Row) {
		if len(more) > 0 {
			rows = overlay(rows, more)
			if !slices.Contains(sources, name) {
				sources = append(sources, name)
			}
		}
	}

	eh, err := ehFrame(im)
	if err != nil {
		return nil, fmt.Errorf("read .eh_frame: %w", err)
	}
	if eh != nil {
		lay("eh_frame", eh.rows(nil, im, x))
	}
	if table := findGoTable(im); table != nil {
		t.KeepsFramePointers = len(rows) == 0
		lay("pclntab", table.rows(im, t.Unsupported))
	}
	debug, err := debugFrame(im)
	if err != nil {
		return nil, fmt.Errorf("read .debug_frame: %w", err)
	}
	if debug != nil {
		lay("debug_frame", debug.rows(rows, im, x))
	}
	lay("plt", stubRows(im))
	table := symbols(im)
	known := table.known(im)
	lay("ends", knownRows(im, pick(known, fateEnd, fateSignal), rows))
	lay("v8", builtinRows(im, table, known))
	turning := pick(known, fateEndAfter)
	if !t.KeepsFramePointers {
		lay("decoded", decodedRows(im, table, rows, turning))
	}
	lay("ends", knownRows(im, turning, rows))
	lay("startup", startupRows(im, rows))
	rows = overlay(forkRows(im, rows), rows)
	rows = afterSyscall(im, rows)
	t.Source = strings.Join(sources, "+")
	t.index(rows)
	return t, nil
}
