package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

var le = binary.LittleEndian

// crafted is an ELF file made in a test: one executable segment, one of data,
// and sections by name in the latter.
//
//	offset  address
//	0x0000            headers
//	0x1000  0x401000  code
//	0x2000  0x402000  sections, in the order given
const (
	codeOff  = 0x1000
	codeAddr = 0x401000
	dataOff  = 0x2000
	dataAddr = 0x402000
)

type part struct {
	name string
	data []byte
}

func craft(code []byte, parts ...part) []byte {
	var data, names, headers bytes.Buffer
	names.WriteByte(0)
	section := func(name string, kind elf.SectionType, flags elf.SectionFlag, addr, off, size uint64) {
		at := names.Len()
		names.WriteString(name + "\x00")
		link := uint32(0)
		switch name {
		case ".strtab":
			kind = elf.SHT_STRTAB
		case ".symtab":
			kind, link = elf.SHT_SYMTAB, uint32(len(parts)+1) // the names come last
		}
		binary.Write(&headers, le, elf.Section64{Name: uint32(at), Type: uint32(kind), Flags: uint64(flags), Addr: addr, Off: off, Size: size, Link: link, Addralign: 1})
	}
	headers.Write(make([]byte, 64))
	section(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, codeAddr, codeOff, uint64(len(code)))
	var hdr *elf.Prog64
	for _, p := range parts {
		off := uint64(dataOff + data.Len())
		section(p.name, elf.SHT_PROGBITS, elf.SHF_ALLOC, dataAddr+off-dataOff, off, uint64(len(p.data)))
		if p.name == ".eh_frame_hdr" {
			hdr = &elf.Prog64{Type: uint32(elf.PT_GNU_EH_FRAME), Off: off, Vaddr: dataAddr + off - dataOff, Filesz: uint64(len(p.data))}
		}
		data.Write(p.data)
		data.Write(make([]byte, -len(p.data)&15))
	}
	namesOff := uint64(dataOff + data.Len())
	section(".shstrtab", elf.SHT_STRTAB, 0, 0, namesOff, uint64(names.Len())+10)
	progs := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: codeOff, Vaddr: codeAddr, Filesz: uint64(len(code)), Memsz: uint64(len(code))},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: dataOff, Vaddr: dataAddr, Filesz: uint64(data.Len()), Memsz: uint64(data.Len())},
	}
	if hdr != nil {
		progs = append(progs, *hdr)
	}
	var out bytes.Buffer
	binary.Write(&out, le, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: 64, Shoff: namesOff + uint64(names.Len()), Ehsize: 64, Phentsize: 56, Phnum: uint16(len(progs)),
		Shentsize: 64, Shnum: uint16(headers.Len() / 64), Shstrndx: uint16(headers.Len()/64 - 1),
	})
	binary.Write(&out, le, progs)
	out.Write(make([]byte, codeOff-out.Len()))
	out.Write(code)
	out.Write(make([]byte, dataOff-out.Len()))
	out.Write(data.Bytes())
	out.Write(names.Bytes())
	out.Write(headers.Bytes())
	return out.Bytes()
}

// chunk is one entry of a frame section: its length, then everything else.
func chunk(body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	b = append(b, make([]byte, -len(b)&3)...)
	return append(le.AppendUint32(nil, uint32(len(b))), b...)
}

func u32(v uint64) []byte { return le.AppendUint32(nil, uint32(v)) }
func u64(v uint64) []byte { return le.AppendUint64(nil, v) }

// entryRules are the instructions of every compiler's CIE: cfa = rsp + 8, the
// return address at cfa-8.
var entryRules = []byte{cfaDef, regRSP, 8, cfaOffset | regRA, 1}

// plainCIE is a CIE as compilers write it, with FDE pointers encoded by enc.
func plainCIE(enc byte) []byte {
	return chunk(u32(0), []byte("\x01zR\x00\x01\x78\x10\x01"), []byte{enc}, entryRules)
}

// frames joins a plain CIE and one FDE for a function of size bytes at the
// start of the code; addr is the address of the section.
func frames(addr, size uint64, code ...byte) []byte {
	b := plainCIE(encPCRel | encS32)
	pos := addr + uint64(len(b)) + 8
	return append(b, chunk(u32(uint64(len(b)+4)), u32(codeAddr-pos), u32(size), []byte{0}, code)...)
}

// fn is a function of a crafted file: its name and its code, in hexadecimal.
type fn struct{ name, code string }

// craftCode is a file with nothing but functions and their symbols.
func craftCode(fns ...fn) []byte {
	names, syms, code := []byte{0}, make([]byte, symbolSize), []byte(nil)
	for _, f := range fns {
		b, err := hex.DecodeString(strings.ReplaceAll(f.code, " ", ""))
		if err != nil {
			panic(err)
		}
		syms = append(append(syms, u32(uint64(len(names)))...), byte(elf.STB_GLOBAL)<<4|byte(elf.STT_FUNC), 0, 1, 0)
		syms = append(append(syms, u64(codeAddr+uint64(len(code)))...), u64(uint64(len(b)))...)
		names = append(append(names, f.name...), 0)
		code = append(code, b...)
	}
	return craft(code, part{".symtab", syms}, part{".strtab", names})
}
