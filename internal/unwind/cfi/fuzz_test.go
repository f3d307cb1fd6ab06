package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"runtime"
	"testing"
)

// Kinds of input for FuzzBuild: what the fuzzed bytes are.
const (
	fuzzFile = iota
	fuzzEHFrame
	fuzzDebugFrame
	fuzzPclntab
	fuzzIndexed // .eh_frame_hdr, a zero byte, .eh_frame; no section headers
	fuzzStubs
	fuzzCode // of three functions, the first of which is a V8 blob if there is more
	fuzzKinds
)

// FuzzBuild wants, of any bytes: no panic, rows in order, an index that agrees
// with them, and memory in proportion to the input.
func FuzzBuild(f *testing.F) {
	ends := []goFn{
		{"main.f", 0, code(30, "55 48 89 e5"), [][2]int{{1, 0}, {28, 8}, {1, 0}}},
		{"runtime.systemstack", flagSPWrite | flagAsm, code(30, "55 48 89 e5 48 8b 62 38"), [][2]int{{1, 0}, {28, 8}, {1, 0}}},
		{"runtime.sigreturn", 0, code(9, ""), [][2]int{{9, 0}}},
	}
	for _, magic := range []uint32{pcln12, pcln116, pcln118, pcln120} {
		b := craftGo(magic, ends...)
		f.Add(uint8(fuzzFile), b)
		f.Add(uint8(fuzzPclntab), sectionOf(b, ".gopclntab"))
	}
	eh := frames(dataAddr, 64, cfaAdvance|1, cfaDefOffset, 16, cfaOffset|regRBP, 2, cfaRemember, cfaAdvance|3, cfaDefReg, regRBP, cfaAdvance1, 20, cfaRecall)
	f.Add(uint8(fuzzEHFrame), eh)
	f.Add(uint8(fuzzFile), craft(make([]byte, 256), part{".eh_frame", eh}))
	f.Add(uint8(fuzzDebugFrame), append(chunk(u32(0xffffffff), []byte("\x04\x00\x08\x00\x01\x78\x10"), entryRules), chunk(u32(0), u64(codeAddr), u64(64))...))
	f.Add(uint8(fuzzIndexed), append([]byte{1, encPCRel | encS32, encU32, encDataRel | encS32, 0x1c, 0, 0, 0, 1, 0, 0, 0, 0, 0xf0, 0xff, 0xff, 0x38, 0, 0, 0}, eh...))
	f.Add(uint8(fuzzStubs), bytes.Repeat(code(16, "ff 25 00 00 00 00 68 00 00 00 00 e9"), 3))

	f.Add(uint8(fuzzCode), code(40, "55 48 89 e5 53 74 02 31 c0 e8 02 00 00 00 5b c9 c3 5a 0f 05 52 c3 ff 24 c5 00 00 40 00 31 ed f4"))
	f.Add(uint8(fuzzFile), craftCode(fn{"f", "53 eb 01 c3 5b c3"}, fn{"f.cold", "31 c0 eb f8"}, fn{"v8_Default_embedded_blob_code_", "55 48 89 e5 c9 59 48 8d 24 cc 51 c3"}))

	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		text := make([]byte, 0x400)
		var file []byte
		switch kind % fuzzKinds {
		case fuzzFile:
			file = data
		case fuzzEHFrame:
			file = craft(text, part{".eh_frame", data})
		case fuzzDebugFrame:
			file = craft(text, part{".debug_frame", data})
		case fuzzPclntab:
			copy(text[64:], code(30, "55 48 89 e5 48 8b 62 38 31 ed"))
			file = craft(text, part{".gopclntab", data}, part{".go.buildinfo", u64(dataAddr)})
		case fuzzIndexed:
			file = dropSections(craft(text, part{".eh_frame_hdr", data}))
		case fuzzCode:
			data = data[:min(len(data), dataOff-codeOff-4)]
			third := len(data) / 3
			file = craftCode(fn{"f", hex.EncodeToString(data[:third])}, fn{"f.cold", hex.EncodeToString(data[third : 2*third])},
				fn{"v8_Default_embedded_blob_code_", hex.EncodeToString(data[2*third:])}, fn{"v8_Default_embedded_blob_code_size_", "40000000"})
		case fuzzStubs:
			file = craft(text, part{".plt", data})
		}
		e, err := elf.NewFile(bytes.NewReader(file))
		if err != nil {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tab, err := Build(e)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20+256*uint64(len(file)) {
			t.Errorf("%d bytes allocated for a file of %d", used, len(file))
		}
		if err != nil {
			return
		}
		check(t, tab)
		if len(tab.Rows) > 2*len(file) {
			t.Errorf("%d rows from a file of %d bytes", len(tab.Rows), len(file))
		}
	})
}

func sectionOf(file []byte, name string) []byte {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		panic(err)
	}
	b, err := f.Section(name).Data()
	if err != nil {
		panic(err)
	}
	return b
}
