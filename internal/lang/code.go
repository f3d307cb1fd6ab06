package lang

import (
	"fmt"

	"atys.dev/atys/internal/binfile"
)

// Range is a stretch of code, as offsets in its file.
type Range struct{ Start, End uint64 }

// CodeOf gives the code of a function that a file exports, as parameters of
// walks take it: what its symbol says, then what the compiler found cold and
// put elsewhere, no more than most ranges.
func CodeOf(f *binfile.File, function string, most int) (code []Range, err error) {
	symbol, _ := f.Exports().Lookup(function)
	parts := f.Parts(symbol)
	if len(parts) == 0 {
		return nil, fmt.Errorf("the code of %s is missing", function)
	}
	for _, p := range parts[:min(len(parts), most)] {
		code = append(code, Range{p.Offset, p.Offset + p.Size})
	}
	return code, nil
}

// Exported gives the address of a symbol that a file must export.
func Exported(f *binfile.File, symbol string) (uint64, error) {
	s, ok := f.Exports().Lookup(symbol)
	if !ok {
		return 0, fmt.Errorf("the symbol %s is missing", symbol)
	}
	return s.Address, nil
}

// Exports tells whether a file exports all of some symbols.
func Exports(f *binfile.File, symbols ...string) bool {
	for _, symbol := range symbols {
		if address, err := Exported(f, symbol); err != nil || address == 0 {
			return false
		}
	}
	return true
}
