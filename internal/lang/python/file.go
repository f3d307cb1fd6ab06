package python

import (
	"bytes"

	"golang.org/x/arch/x86/x86asm"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

const maxRanges = 8 // of the evaluation function's code

// file is what the runtime's file tells, which all its processes share. Its
// addresses are the file's own, 0 where a version has no such symbol.
type file struct {
	minor      int // x of version 3.x
	evaluation []lang.Range
	codeType   uint64    // PyCode_Type
	runtime    uint64    // _PyRuntime, since 3.7
	current    uint64    // _PyThreadState_Current, of 3.6
	heads      []operand // of PyInterpreterState_Head
	keys       []operand // of PyGILState_GetThisThreadState
}

func readFile(f *binfile.File, at string) (told file, err error) {
	r, err := lang.Told(f, at, lang.Python)
	if err != nil {
		return told, err
	}
	_, told.minor = r.Series()
	if told.evaluation, err = lang.CodeOf(f, evaluationFunction, maxRanges); err != nil {
		return told, err
	}
	if told.codeType, err = lang.Exported(f, "PyCode_Type"); err != nil {
		return told, err
	}
	runtime, _ := f.Exports().Lookup("_PyRuntime")
	current, _ := f.Exports().Lookup("_PyThreadState_Current")
	told.runtime, told.current = runtime.Address, current.Address
	told.heads = operands(f, "PyInterpreterState_Head")
	told.keys = operands(f, "PyGILState_GetThisThreadState")
	return told, nil
}

// operand is a place in memory that an instruction names: an address of the
// file, or a distance from a register.
type operand struct {
	value    uint64
	absolute bool
	wide     bool // eight bytes are read there
}

const maxInstructions = 24 // of a function that are looked at

// operands lists what the first instructions of a function load.
func operands(f *binfile.File, function string) (found []operand) {
	s, ok := f.Exports().Lookup(function)
	if !ok {
		return nil
	}
	code := make([]byte, min(s.Size, 256))
	n, _ := f.ReadAddress(code, s.Address)
	code = bytes.TrimPrefix(code[:n], []byte{0xf3, 0x0f, 0x1e, 0xfa}) // endbr64
	at := s.Address + uint64(n-len(code))
	for range maxInstructions {
		in, err := x86asm.Decode(code, 64)
		if err != nil {
			break
		}
		code, at = code[in.Len:], at+uint64(in.Len)
		m, ok := in.Args[1].(x86asm.Mem)
		if !ok || in.Op != x86asm.MOV && in.Op != x86asm.LEA || m.Disp == 0 {
			continue
		}
		switch {
		case m.Base == x86asm.RIP && in.Op == x86asm.MOV:
			found = append(found, operand{at + uint64(m.Disp), true, in.MemBytes == 8})
		case m.Base != x86asm.RIP && in.Op == x86asm.LEA && m.Disp > 0:
			found = append(found, operand{value: uint64(m.Disp)})
		}
	}
	return found
}
