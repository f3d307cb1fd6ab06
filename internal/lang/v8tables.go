package lang

import (
	"encoding/binary"
	"errors"
	"io"

	"atys.dev/atys/internal/binfile"
)

// V8Tables are what a file that contains V8 has and does not tell debuggers:
// addresses in it.
type V8Tables struct {
	Builtins, BuiltinsSize uint64 // code that V8 brings along
	BytecodeSizes          uint64 // how long instructions of bytecode are; 0: not told
	TranslationOperands    uint64 // how many operands those of translations have; 0: not told
}

const (
	v8CodeCall = "_ZN2v88internal23DefaultEmbeddedBlobCodeEv"
	v8SizeCall = "_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv"
	v8Code     = "v8_Default_embedded_blob_code_"
	v8CodeSize = "v8_Default_embedded_blob_code_size_"
	v8Sizes    = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE"
	v8Operands = "_ZZN2v88internal29TranslationOpcodeOperandCountENS0_17TranslationOpcodeEE6counts"
)

// FindV8Tables finds them; without builtins V8's stacks cannot be walked. Up to
// V8 12 all are exported, the first by functions of a few instructions; later
// only the full table of symbols has them.
func FindV8Tables(f *binfile.File) (t V8Tables, err error) {
	e := f.Exports()
	if s, ok := e.Lookup(v8CodeCall); ok {
		t.Builtins, _ = returned(f, s.Address)
	}
	if s, ok := e.Lookup(v8SizeCall); ok {
		_, t.BuiltinsSize = returned(f, s.Address)
	}
	sizes, _ := e.Lookup(v8Sizes)
	operands, _ := e.Lookup(v8Operands)
	t.BytecodeSizes, t.TranslationOperands = sizes.Address, operands.Address
	if t.Builtins == 0 || t.BuiltinsSize == 0 || t.BytecodeSizes == 0 || t.TranslationOperands == 0 {
		t.lookUp(f)
	}
	if _, ok := f.Offset(t.Builtins); !ok || t.Builtins == 0 || t.BuiltinsSize == 0 {
		return t, errors.New("this V8 does not tell where its builtins are: its file is stripped of symbols")
	}
	return t, nil
}

// lookUp takes what there is from the full table of symbols.
func (t *V8Tables) lookUp(f *binfile.File) {
	s := f.LookupSymbols(v8Code, v8CodeSize, v8Sizes, v8Operands)
	t.BytecodeSizes, t.TranslationOperands = s[v8Sizes], s[v8Operands]
	size, ok := s[v8CodeSize] // else what lies at 0 would be read: the head of the file
	var b [4]byte
	if n, _ := f.ReadAddress(b[:], size); ok && t.BuiltinsSize == 0 && n == len(b) {
		t.Builtins, t.BuiltinsSize = s[v8Code], uint64(binary.LittleEndian.Uint32(b[:]))
	}
}

// returned is what a function returns that is one move and a return: an
// address, or the number at an address.
func returned(f *binfile.File, function uint64) (address, number uint64) {
	var code [16]byte
	if n, err := f.ReadAddress(code[:], function); n < 8 || err != nil && !errors.Is(err, io.EOF) {
		return 0, 0
	}
	relative := func(length int) uint64 {
		return function + uint64(length) + uint64(int32(binary.LittleEndian.Uint32(code[length-4:])))
	}
	switch {
	case code[0] == 0xb8 && code[5] == 0xc3: // mov eax, constant
		v := uint64(binary.LittleEndian.Uint32(code[1:]))
		return v, v
	case code[0] == 0x48 && code[1] == 0x8d && code[2] == 0x05 && code[7] == 0xc3: // lea rax, [rip+...]
		return relative(7), 0
	case code[0] == 0x48 && code[1] == 0x8b && code[2] == 0x05 && code[7] == 0xc3: // mov rax, [rip+...]
		var b [8]byte
		f.ReadAddress(b[:], relative(7))
		return binary.LittleEndian.Uint64(b[:]), 0
	case code[0] == 0x8b && code[1] == 0x05 && code[6] == 0xc3: // mov eax, [rip+...]
		var b [4]byte
		f.ReadAddress(b[:], relative(6))
		return 0, uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return 0, 0
}
