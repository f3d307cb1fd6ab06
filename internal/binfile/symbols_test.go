package binfile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"
)

const hostileText = 0x10_0000 // where the code of withSymbols is, and how large it is

// withSymbols makes a file of symbols of one byte, with their names' offsets given, and of
// as many tables that are the same one.
func withSymbols(t testing.TB, tables int, names []byte, offsets func(yield func(uint32) bool)) *File {
	t.Helper()
	var symbols []byte
	for at := range offsets {
		s := make([]byte, symbolBytes)
		binary.LittleEndian.PutUint32(s, at)
		s[4] = byte(elf.STT_FUNC)
		s[6] = 2
		binary.LittleEndian.PutUint64(s[8:], uint64(hostileText+len(symbols)/symbolBytes))
		binary.LittleEndian.PutUint64(s[16:], 1)
		symbols = append(symbols, s...)
	}
	data := header(0, 0, 3+tables, sectionHeader, 0)
	at := len(data) + (3+tables)*sectionHeader
	text := section(0, elf.SHT_PROGBITS, elf.SHF_EXECINSTR, 0, hostileText)
	binary.LittleEndian.PutUint64(text[16:], hostileText)
	table := section(0, elf.SHT_SYMTAB, 0, at+len(names), len(symbols))
	binary.LittleEndian.PutUint32(table[40:], 1)
	data = slices.Concat(data, section(0, elf.SHT_NULL, 0, 0, 0), section(0, elf.SHT_STRTAB, 0, at, len(names)), text,
		bytes.Repeat(table, tables), names, symbols)
	f, err := New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Symbols whose names are ends of one string have no more names than files have reason to.
func TestNamesOfSymbolsAreBounded(t *testing.T) {
	const size = 1 << 20
	names := []byte(strings.Repeat("n", size-1) + "\x00")
	for _, tc := range []struct {
		name string
		step uint32
		from uint32
	}{{"of any length", 10, 0}, {"as long as names may be", 1, size - maxNameLength}} {
		t.Run(tc.name, func(t *testing.T) {
			f := withSymbols(t, 1000, names, func(yield func(uint32) bool) {
				for at := tc.from; at < size-1 && yield(at); at += tc.step {
				}
			})
			start, total, n := time.Now(), 0, 0
			f.EachSymbol(func(s Symbol) { total += len(s.Name); n++ })
			if total > maxTables*(nameShare*size+nameSlack) {
				t.Errorf("names of %d bytes from %d", total, size)
			}
			if tc.from > 0 && (n == 0 || total < size) {
				t.Errorf("%d names of %d bytes", n, total)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Functions that have the same name share it in the string table.
func TestSharedNamesOfSymbols(t *testing.T) {
	const functions = 10_000
	f := withSymbols(t, 1, []byte("\x00init\x00"), slices.Values(slices.Repeat([]uint32{1}, functions)))
	if symbols, full := f.Symbols(); len(symbols) != functions || !full || symbols[functions-1].Name != "init" {
		t.Errorf("%d symbols", len(symbols))
	}
}
