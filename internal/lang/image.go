package lang

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path"
	"strings"

	"atys.dev/atys/internal/binfile"
)

// image is one file that a process maps code from.
type image struct {
	file    *binfile.File
	exports binfile.Exports
	path    string // in the mount namespace of the process
	program bool   // it is the process's program, not a library
	beside  func(path string) (*os.File, error)
	static  map[string]uint64 // symbols, where there are no exports
	left    int64             // bytes that may still be searched
}

func newImage(f *binfile.File, path string, program bool, beside func(string) (*os.File, error)) *image {
	im := &image{file: f, exports: f.Exports(), path: path, program: program, beside: beside, left: maxSearched}
	// A static program exports nothing; its full table, if it was not
	// stripped, is read once.
	if program && im.exports.Empty() && f.Size() <= maxStaticProgram && !f.IsGo() {
		im.static = f.LookupSymbols(markers()...)
	}
	return im
}

const (
	maxStaticProgram = 256 << 20 // bytes of a static program whose symbols are read
	maxSearched      = 512 << 20 // bytes of a file searched for strings, in all passes; of node 150 MB
	searchedAtOnce   = 1 << 20
	maxVersion       = 256 // bytes of a version with its surroundings, which pieces overlap by
	maxBeside        = 64 << 10
)

// base is the file's name without its directories.
func (im *image) base() string { return path.Base(im.path) }

// has reports whether the file defines a symbol that a marker names.
func (im *image) has(name string) bool {
	if _, ok := im.exports.Lookup(name); ok {
		return true
	}
	_, ok := im.static[name]
	return ok
}

// bytesAt reads up to n bytes that a symbol stands for.
func (im *image) bytesAt(symbol string, n int) []byte {
	address, ok := im.static[symbol]
	if s, exported := im.exports.Lookup(symbol); exported {
		address, ok = s.Address, true
	}
	if !ok {
		return nil
	}
	data := make([]byte, n)
	got, _ := im.file.ReadAddress(data, address)
	return data[:got]
}

// stringAt reads a string that a symbol stands for; "" if it is none.
func (im *image) stringAt(symbol string) string {
	text, _, ok := bytes.Cut(im.bytesAt(symbol, maxVersion), []byte{0})
	if !ok {
		return ""
	}
	return string(text)
}

// search hands match the data sections of a file piece by piece until it
// accepts one. Pieces overlap, so that nothing of up to maxVersion bytes is
// missed at a seam.
func (im *image) search(match func(piece []byte) bool) bool {
	buf := make([]byte, searchedAtOnce)
	for _, r := range im.strings() {
		for at := int64(0); at < r.Size() && im.left > 0; at += searchedAtOnce - maxVersion {
			n, err := r.ReadAt(buf, at)
			im.left -= int64(n)
			if n > 0 && match(buf[:n]) {
				return true
			}
			if err != nil {
				break
			}
		}
	}
	return false
}

// strings returns where constants are: the section of that name and that of
// other data, or the segments that are not code where sections were removed.
func (im *image) strings() (readers []*io.SectionReader) {
	for _, name := range []string{".rodata", ".data", ".svm_heap"} {
		if s := im.file.Section(name); s != nil && s.Flags&elf.SHF_COMPRESSED == 0 {
			readers = append(readers, io.NewSectionReader(im.file, int64(s.Offset), int64(s.FileSize)))
		}
	}
	if len(readers) > 0 {
		return readers
	}
	for _, p := range im.file.ELF.Progs {
		if p.Type == elf.PT_LOAD {
			readers = append(readers, io.NewSectionReader(im.file, int64(p.Off), int64(p.Filesz)))
		}
	}
	return readers
}

// holds reports whether the file's constants hold a text.
func (im *image) holds(text string) bool {
	return im.search(func(piece []byte) bool { return bytes.Contains(piece, []byte(text)) })
}

// after returns the first piece of text that follows a prefix among the
// file's constants and that accept takes something of.
func (im *image) after(prefix string, accept func(rest string) string) (found string) {
	im.search(func(piece []byte) bool {
		for at := 0; ; {
			i := bytes.Index(piece[at:], []byte(prefix))
			if i < 0 {
				return false
			}
			at += i + len(prefix)
			if found = accept(string(piece[at:min(at+maxVersion, len(piece))])); found != "" {
				return true
			}
		}
	})
	return found
}

// read reads a small file beside this one, as the process sees it.
func (im *image) read(relative string) string {
	if im.beside == nil {
		return ""
	}
	file, err := im.beside(path.Join(path.Dir(im.path), relative))
	if err != nil {
		return ""
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBeside))
	if err != nil {
		return ""
	}
	return string(data)
}

// sibling reports whether there is a file at a path relative to this one.
func (im *image) sibling(relative string) bool {
	if im.beside == nil {
		return false
	}
	file, err := im.beside(path.Join(path.Dir(im.path), relative))
	if err != nil {
		return false
	}
	file.Close()
	return true
}

// numbers takes a version of dotted numbers from the beginning of a text.
func numbers(text string) string {
	end := 0
	for end < len(text) && end < maxVersion && (text[end] >= '0' && text[end] <= '9' || text[end] == '.') {
		end++
	}
	return strings.TrimRight(text[:end], ".")
}
