package cfi

import (
	"fmt"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// BuildManaged makes the table of code that .NET compiled ahead. Its compiler
// begins and ends functions in few ways, which are read from the code:
//
//	push rbp; push ...; sub rsp, n; lea rbp, [rsp+n]    keeps rbp
//	push ...; sub rsp, n                                small ones do not
//	add rsp, n; pop ...; ret
//
// dotnet.h does the same with what is compiled at run time.
func BuildManaged(f *binfile.PE) (*rows.Table, error) {
	t := &rows.Table{Unsupported: map[string]int{}, Source: "managed"}
	var all []rows.Row
	var code []byte
	for i, function := range f.Functions {
		if function.End >= 1<<32 {
			break
		}
		size := int(function.End - function.Start)
		if size > cap(code) {
			code = make([]byte, size)
		}
		code = code[:size]
		if n, err := f.ReadAt(code, int64(function.Start)); n < size {
			return nil, fmt.Errorf("read code: %w", err)
		}
		all = appendManaged(all, uint32(function.Start), code)
		if i+1 == len(f.Functions) || f.Functions[i+1].Start != function.End {
			all = append(all, rows.NewRow(uint32(function.End), rows.NewRule(rows.Gap, 0, 0)))
		}
	}
	t.SetRows(all)
	return t, nil
}

// managedFrame is what lies between rsp and the return address, in words.
type managedFrame struct {
	words uint32
	bp    uint32 // the caller's rbp: so many words from the return address; 0: it is in rbp
}

func (f managedFrame) rule() rows.Rule {
	saved := uint8(rows.RBPSame)
	switch {
	case f.words >= rows.MaxCFA:
		return rows.NewRule(rows.Unsupported, 0, 0)
	case f.bp >= rows.RBPMax:
		saved = rows.RBPLost
	case f.bp > 0:
		saved = uint8(f.bp + 1)
	}
	return rows.NewRule(rows.SP, saved, f.words+1)
}

// appendManaged adds the rows of one function.
func appendManaged(all []rows.Row, start uint32, code []byte) []rows.Row {
	var f managedFrame
	at := 0
	for {
		all = append(all, rows.NewRow(start+uint32(at), f.rule()))
		n := f.take(code[at:])
		if n == 0 || at+n >= len(code) {
			break
		}
		at += n
	}
	body := f.rule()
	if f.bp > 0 {
		body = rows.NewRule(rows.BP, 2, 2)
		if at += managedEstablishes(code[at:]); at < len(code) {
			all = append(all, rows.NewRow(start+uint32(at), body))
		}
	}
	return appendManagedEnds(all, start, code, at, f, body)
}

// take reads an instruction of a function's beginning, and gives its length; 0
// where it is none.
func (f *managedFrame) take(code []byte) int {
	starts := func(n int, with ...byte) bool { return len(code) >= n && string(code[:len(with)]) == string(with) }
	switch {
	case starts(1) && code[0]&0xf8 == 0x50:
		f.words++
		if code[0] == 0x55 {
			f.bp = f.words
		}
		return 1
	case starts(2, 0x41) && code[1]&0xf8 == 0x50:
		f.words++
		return 2
	case starts(4, 0x48, 0x83, 0xec):
		f.words += uint32(code[3]) / 8
		return 4
	case starts(7, 0x48, 0x81, 0xec):
		f.words += (uint32(code[3]) | uint32(code[4])<<8 | uint32(code[5])<<16) / 8
		return 7
	case starts(3, 0xc5, 0xf8, 0x77):
		return 3
	}
	return 0
}

// managedEstablishes gives the length of the instruction that points rbp at the frame.
func managedEstablishes(code []byte) int {
	for with, length := range map[string]int{"\x48\x8b\xec": 3, "\x48\x8d\x6c\x24": 5, "\x48\x8d\xac\x24": 8} {
		if len(code) >= length && string(code[:len(with)]) == with {
			return length
		}
	}
	return 1 // others do it in between: what is called from there finds rbp
}

// appendManagedEnds adds the rows of where a function returns. Bytes that only
// look like that are within instructions: no pc is there.
func appendManagedEnds(all []rows.Row, start uint32, code []byte, from int, f managedFrame, body rows.Rule) []rows.Row {
	for i := from; i < len(code); i++ {
		if code[i] != 0xc3 {
			continue
		}
		first, words := i, uint32(0)
		for f.bp == 0 && words < f.words && first-1 > from && code[first-1]&0xf8 == 0x58 {
			first, words = first-1, words+1
			if code[first-1] == 0x41 && first-1 > from {
				first--
			}
		}
		for at := first; at < i; words-- {
			all = appendRow(all, start+uint32(at), managedFrame{words: words}.rule())
			if code[at] == 0x41 {
				at++
			}
			at++
		}
		all = appendRow(all, start+uint32(i), managedFrame{}.rule())
		if i+1 < len(code) {
			all = append(all, rows.NewRow(start+uint32(i+1), body))
		}
	}
	return all
}

// appendRow adds a row, in place of one at the same offset or after it.
func appendRow(all []rows.Row, at uint32, r rows.Rule) []rows.Row {
	for len(all) > 0 && all[len(all)-1].Offset() >= at {
		all = all[:len(all)-1]
	}
	return append(all, rows.NewRow(at, r))
}
