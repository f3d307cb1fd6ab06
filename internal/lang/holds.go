package lang

import (
	"strings"

	"atys.dev/atys/internal/binfile"
)

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
