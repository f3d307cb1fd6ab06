package lang

import (
	"fmt"
	"strings"

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

// holding is what a file must export for walks to know that a runtime is in
// it: all symbols of any of these.
var holding = map[Kind][][]string{
	Python:  {{"_PyEval_EvalFrameDefault"}},
	HotSpot: {{"gHotSpotVMStructs"}},
	Node:    {{"v8dbg_class_Map__instance_type__uint16_t"}}, // and all that contains V8
	Ruby:    {{"rb_vm_exec"}},
	PHP:     {{"execute_ex"}},
	Perl:    {{"Perl_runops_standard"}},
	BEAM:    {{"erts_atom_table", "erts_proc", "beam_normal_exit"}}, // the last: with its JIT
	DotNet:  {{"coreclr_initialize"}, {"DotNetRuntimeInfo"}},        // in a library of its own, or in a program
}

// Holds tells whether walks look into a file for a runtime of a kind.
func Holds(f *binfile.File, kind Kind) bool {
	for _, symbols := range holding[kind] {
		if Exports(f, symbols...) {
			return true
		}
	}
	return false
}

// hidden is what a file lacks for walks to find the runtime that it holds.
func (im *image) hidden(kind Kind) string {
	if len(holding[kind]) == 0 || Holds(im.file, kind) {
		return ""
	}
	return "its file does not export " + strings.Join(holding[kind][0], ", ")
}
