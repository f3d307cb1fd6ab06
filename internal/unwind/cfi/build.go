package cfi

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// ErrMachine says that a file is not for x86-64.
var ErrMachine = errors.New("not an x86-64 program or library")

// Build makes the table of f. A file without any unwind information gives a
// table without rows; damaged information gives rows for what is sound.
func Build(f *elf.File) (*rows.Table, error) {
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil, ErrMachine
	}
	t := &rows.Table{Unsupported: map[string]int{}}
	im := newImage(f)
	x := &executor{unsupported: t.Unsupported}
	var sources []string
	var all []rows.Row
	lay := func(name string, more []rows.Row) {
		if len(more) > 0 {
			all = rows.Overlay(all, more)
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
		t.KeepsFramePointers = len(all) == 0
		lay("pclntab", table.rows(im, t.Unsupported))
	}
	debug, err := debugFrame(im)
	if err != nil {
		return nil, fmt.Errorf("read .debug_frame: %w", err)
	}
	if debug != nil {
		lay("debug_frame", debug.rows(all, im, x))
	}
	lay("plt", stubRows(im))
	table := symbols(im)
	known := table.known(im)
	lay("ends", knownRows(im, pick(known, fateEnd, fateSignal), all))
	lay("v8", builtinRows(im, table, known))
	turning := pick(known, fateEndAfter)
	if !t.KeepsFramePointers {
		lay("decoded", decodedRows(im, table, all, turning))
	}
	lay("ends", knownRows(im, turning, all))
	lay("startup", startupRows(im, all))
	all = rows.Overlay(forkRows(im, all), all)
	all = afterSyscall(im, all)
	t.Source = strings.Join(sources, "+")
	t.SetRows(all)
	return t, nil
}
