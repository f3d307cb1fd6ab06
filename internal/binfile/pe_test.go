package binfile

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// peFile is a PE file of one section at address 0x1000, which begins at 0x400
// of the file with the table of functions.
func peFile(functions ...[2]uint32) []byte {
	le := binary.LittleEndian
	const header, optional = 0x80, 240
	b := make([]byte, 0x400, 0x1400)
	copy(b, "MZ")
	le.PutUint32(b[peHeaderAt:], header)
	copy(b[header:], "PE\x00\x00")
	le.PutUint16(b[header+4:], 0xfd1d) // the machine, as .NET for Linux writes it
	le.PutUint16(b[header+6:], 1)
	le.PutUint16(b[header+20:], optional)
	le.PutUint16(b[header+peFileHeader:], peOptional64)
	directory := b[header+peFileHeader+peDirectories+8*peExceptions:]
	le.PutUint32(directory, 0x1000)
	le.PutUint32(directory[4:], uint32(len(functions)*peFunctionBytes))
	section := b[header+peFileHeader+optional:]
	le.PutUint32(section[12:], 0x1000)
	le.PutUint32(section[16:], 0x1000)
	le.PutUint32(section[20:], 0x400)
	for _, f := range functions {
		b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, f[0]), f[1]), 0)
	}
	return b[:cap(b)]
}

func TestPE(t *testing.T) {
	p, err := NewPE(bytes.NewReader(peFile([2]uint32{0x1100, 0x1110}, [2]uint32{0x1110, 0x1118}, [2]uint32{0x1114, 0x1120}, [2]uint32{0x9000, 0x9001})))
	if err != nil {
		t.Fatal(err)
	}
	if want := []PEFunction{{0x500, 0x510}, {0x510, 0x518}}; !slices.Equal(p.Functions, want) {
		t.Errorf("got %x, want %x: one overlaps, one is nowhere", p.Functions, want)
	}
	for offset, want := range map[uint64]uint64{0x4ff: 0, 0x500: 0x500, 0x50f: 0x500, 0x510: 0x510, 0x518: 0} {
		if f, _ := p.Function(offset); f.Start != want {
			t.Errorf("at %#x is %#x, want %#x", offset, f.Start, want)
		}
	}
	other, err := NewPE(bytes.NewReader(peFile([2]uint32{0x1100, 0x1111})))
	if err != nil || other.BuildID == p.BuildID {
		t.Errorf("another file has id %q too (%v)", p.BuildID, err)
	}
	for name, data := range map[string][]byte{"empty": nil, "ELF": []byte("\x7fELF" + string(make([]byte, 100))), "cut": peFile()[:0x90]} {
		if _, err := NewPE(bytes.NewReader(data)); err == nil {
			t.Errorf("%s is a PE file", name)
		}
	}
}

// TestPEReal reads the library of an installed .NET.
func TestPEReal(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(home + "/.cache/atys/runtimes/dotnet-*/shared/Microsoft.NETCore.App/*/System.Private.CoreLib.dll")
	if len(found) == 0 {
		t.Skip("no .NET: run .ci/runtimes")
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := NewPE(f)
	if err != nil {
		t.Fatal(err)
	}
	pushes := 0
	for _, function := range p.Functions {
		var first [1]byte
		if _, err := f.ReadAt(first[:], int64(function.Start)); err != nil {
			t.Fatal(err)
		}
		if first[0] == 0x55 { // push rbp
			pushes++
		}
	}
	if n := len(p.Functions); n < 10000 || pushes < n/3 {
		t.Errorf("%d functions, %d of which begin with push rbp", n, pushes)
	}
}

// FuzzPE asserts that functions are sorted, do not overlap, and are found.
func FuzzPE(f *testing.F) {
	f.Add(peFile([2]uint32{0x1100, 0x1110}, [2]uint32{0x1110, 0x1118})[:0x600])
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := NewPE(bytes.NewReader(data))
		if err != nil {
			return
		}
		last := uint64(0)
		for _, function := range p.Functions {
			if function.Start < last || function.End <= function.Start {
				t.Fatalf("%x after %#x", function, last)
			}
			last = function.End
			if found, ok := p.Function(function.End - 1); !ok || found != function {
				t.Fatalf("%x is not found", function)
			}
		}
	})
}
