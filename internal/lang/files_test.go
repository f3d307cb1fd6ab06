package lang

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// library is a small ELF file: symbols that it exports, each with its bytes,
// and constants that are only there.
type library struct {
	symbols   map[string]string
	constants string
}

// exporting makes a library whose symbols stand for a byte each.
func exporting(constants string, names ...string) library {
	l := library{symbols: map[string]string{}, constants: constants}
	for _, name := range names {
		l.symbols[name] = "\x00"
	}
	return l
}

// with adds a symbol that stands for a value.
func (l library) with(name, value string) library {
	l.symbols[name] = value
	return l
}

// bytes lays the file out as one segment loaded at 0, without sections, as a
// stripper may leave it:
//
//	header | 2 program headers | dynamic | symbols | hash | strings | constants
func (l library) bytes() []byte {
	const headerBytes, programBytes, symbolBytes, tagBytes = 64, 56, 24, 16
	const dynamicAt = headerBytes + 2*programBytes
	const symbolsAt = dynamicAt + 5*tagBytes
	n := len(l.symbols) + 1
	hashAt := symbolsAt + n*symbolBytes
	stringsAt := hashAt + 4*(2+1+n)
	var names, data []byte
	names = append(names, 0)
	dataAt := stringsAt + 1
	for name := range l.symbols {
		dataAt += len(name) + 1
	}
	symbols := make([]byte, symbolBytes)
	hash := []uint32{1, uint32(n), uint32(min(n-1, 1)), 0} // one bucket, a chain of all
	i := uint32(1)
	for name, value := range l.symbols {
		symbols = binary.LittleEndian.AppendUint32(symbols, uint32(len(names)))
		symbols = append(symbols, byte(elf.STB_GLOBAL)<<4|byte(elf.STT_OBJECT), 0, 1, 0)
		symbols = binary.LittleEndian.AppendUint64(symbols, uint64(dataAt+len(data)))
		symbols = binary.LittleEndian.AppendUint64(symbols, uint64(len(value)))
		names = append(append(names, name...), 0)
		data = append(data, value...)
		i++
		hash = append(hash, i%uint32(n))
	}
	data = append(append(data, 0), l.constants...)
	var out bytes.Buffer
	total := uint64(dataAt + len(data))
	put := func(v any) { _ = binary.Write(&out, binary.LittleEndian, v) }
	put(elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64),
		Version: 1, Phoff: headerBytes, Ehsize: headerBytes, Phentsize: programBytes, Phnum: 2})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: total, Memsz: total})
	put(elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R), Off: dynamicAt, Vaddr: dynamicAt, Filesz: 5 * tagBytes, Memsz: 5 * tagBytes})
	put([]elf.Dyn64{{Tag: int64(elf.DT_SYMTAB), Val: symbolsAt}, {Tag: int64(elf.DT_HASH), Val: uint64(hashAt)},
		{Tag: int64(elf.DT_STRTAB), Val: uint64(stringsAt)}, {Tag: int64(elf.DT_STRSZ), Val: uint64(len(names))}, {}})
	put(symbols)
	put(hash)
	out.Write(names)
	out.Write(data)
	return out.Bytes()
}

// machine is a /proc with one process, number 7, and the files it sees.
type machine struct {
	t    testing.TB
	dir  string
	maps strings.Builder
	next uint64
}

func newMachine(t testing.TB) *machine {
	m := &machine{t: t, dir: t.TempDir(), next: 0x7f0000000000}
	m.write("proc/7/stat", "7 (shop) S 1 "+strings.Repeat("0 ", 48))
	m.write("root/.", "")
	if err := os.Symlink("../../root", filepath.Join(m.dir, "proc/7/root")); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) write(name, content string) string {
	m.t.Helper()
	at := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if strings.HasSuffix(name, "/.") {
		return at
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return at
}

// mapped adds a file that the process maps code from.
func (m *machine) mapped(path string, content []byte) {
	m.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(m.write("root"+path, string(content)), &st); err != nil {
		m.t.Fatal(err)
	}
	fmt.Fprintf(&m.maps, "%x-%x r-xp 00000000 %02x:%02x %d %s\n", m.next, m.next+0x1000, unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino, path)
	m.next += 0x1000
}

// line adds a mapping without a file of ours.
func (m *machine) line(perm, name string) {
	fmt.Fprintf(&m.maps, "%x-%x %s 00000000 00:00 0 %s\n", m.next, m.next+0x1000, perm, name)
	m.next += 0x1000
}

// program says which file was started.
func (m *machine) program(path string) {
	m.t.Helper()
	if err := os.Symlink(path, filepath.Join(m.dir, "proc/7/exe")); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) fs() proc.FS {
	m.write("proc/7/maps", m.maps.String())
	return proc.FS{Root: filepath.Join(m.dir, "proc")}
}
