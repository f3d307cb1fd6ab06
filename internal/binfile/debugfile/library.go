package debugfile

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"atys.dev/atys/internal/binfile"
)

// Library is a directory of files that were given to us, by their build-ids: the
// executables themselves, and their debug files where a Finder looks for them.
type Library struct {
	Dir   string
	Bytes int64 // that all of them may have

	mu       sync.Mutex // guards all below, and what is in place
	kept     int64      // bytes of what is in place, when it was last looked at
	largest  int64      // of these, those of one file
	underway int64      // bytes of uploads that are not in place yet
}

// Kept is a file of a Library.
type Kept struct {
	BuildID string `json:"buildId"`
	// Executable tells whether it holds code. Without that of its build-id a debug
	// file names nothing: it does not tell where in the executable code lies.
	Executable bool  `json:"executable"`
	Bytes      int64 `json:"bytes"`
}

// What a Library refuses.
var (
	ErrLibraryFull = errors.New("there is no room for more debug files")
	ErrNotELF      = errors.New("the file is no executable or debug file that can be read (ELF)")
	ErrNoBuildID   = errors.New("the file has no build-id (link with --build-id)")
)

const (
	debugSuffix = ".debug"
	// uploadPrefix begins the names of files that are not in place yet.
	uploadPrefix = ".upload-"
)

// Sweep removes what uploads have left whose server was killed. None may be under way.
func (l *Library) Sweep() (err error) {
	left, err := filepath.Glob(filepath.Join(l.Dir, uploadPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (l *Library) path(id string, executable bool) string {
	name := id[2:]
	if !executable {
		name += debugSuffix
	}
	return filepath.Join(l.Dir, ".build-id", id[:2], name)
}

// Keep keeps a file under the build-id that it tells. One that is there already
// is replaced, also where there is no room for another one.
func (l *Library) Keep(content io.Reader) (k Kept, err error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return k, err
	}
	u, err := l.begin()
	if err != nil {
		return k, err
	}
	defer u.end()
	k.Bytes, err = io.Copy(u, content)
	if err = errors.Join(err, u.file.Sync(), u.file.Close()); err != nil {
		return k, err
	}
	f, err := binfile.Open(u.file.Name())
	if err != nil {
		return k, fmt.Errorf("%w: %w", ErrNotELF, err)
	}
	k.BuildID, k.Executable = f.BuildID(), holdsCode(f)
	if err := f.Close(); err != nil {
		return k, err
	}
	if !buildIDForm.MatchString(k.BuildID) {
		return k, ErrNoBuildID
	}
	return k, u.place(&k)
}

// upload is a file on its way into a library. What is written of it takes room at
// once, so that uploads at the same time do not take the same.
type upload struct {
	library *Library
	file    *os.File
	bytes   int64 // of the library's that are under way; guarded by its lock
}

// begin begins an upload, which is to be ended.
func (l *Library) begin() (*upload, error) {
	l.mu.Lock()
	err := l.look()
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(l.Dir, uploadPrefix+"*")
	return &upload{library: l, file: file}, err
}

// Write writes more of the file, if there is room. Which file it is, and whether it
// replaces one, is known at its end: until then all uploads together may exceed
// the room by as much as the largest file has that one can replace.
func (u *upload) Write(p []byte) (int, error) {
	l := u.library
	l.mu.Lock()
	if l.kept+l.underway+int64(len(p)) > l.Bytes+l.largest {
		l.underway, u.bytes = l.underway-u.bytes, 0 // or two that end here would refuse each other
		l.mu.Unlock()
		return 0, ErrLibraryFull
	}
	l.underway, u.bytes = l.underway+int64(len(p)), u.bytes+int64(len(p))
	l.mu.Unlock()
	return u.file.Write(p)
}

// place puts the file where it belongs, if there is room but for what it replaces.
func (u *upload) place(k *Kept) error {
	l := u.library
	path := l.path(k.BuildID, k.Executable)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.look(); err != nil {
		return err
	}
	others := l.kept
	if old, err := os.Stat(path); err == nil {
		others -= old.Size()
	}
	if others+k.Bytes > l.Bytes {
		return ErrLibraryFull
	}
	if err := os.Rename(u.file.Name(), path); err != nil {
		return err
	}
	l.kept, l.largest = others+k.Bytes, max(l.largest, k.Bytes)
	l.underway, u.bytes = l.underway-u.bytes, 0
	return nil
}

// end gives back what the upload has taken, but for what is in place.
func (u *upload) end() {
	_ = u.file.Close()           // it may be already
	_ = os.Remove(u.file.Name()) // it is elsewhere, or of no use
	u.library.mu.Lock()
	defer u.library.mu.Unlock()
	u.library.underway -= u.bytes
}

// look sees how much is in place. The library is locked.
func (l *Library) look() error {
	all, err := l.List()
	l.kept, l.largest = 0, 0
	for _, k := range all {
		l.kept, l.largest = l.kept+k.Bytes, max(l.largest, k.Bytes)
	}
	return err
}

// holdsCode tells an executable from its debug file, whose sections of code are
// empty.
func holdsCode(f *binfile.File) bool {
	return len(f.Executable()) > 0 && !slices.ContainsFunc(f.ELF.Sections, func(s *elf.Section) bool {
		return s.Flags&elf.SHF_EXECINSTR != 0 && s.Type == elf.SHT_NOBITS
	})
}

// List lists what is kept, by build-id.
func (l *Library) List() (all []Kept, err error) {
	paths, err := filepath.Glob(filepath.Join(l.Dir, ".build-id", "??", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		name := filepath.Base(filepath.Dir(path)) + filepath.Base(path)
		id, debug := strings.CutSuffix(name, debugSuffix)
		all = append(all, Kept{BuildID: id, Executable: !debug, Bytes: info.Size()})
	}
	slices.SortFunc(all, func(a, b Kept) int { return cmp.Compare(a.BuildID, b.BuildID) })
	return all, nil
}

// Open opens the executable of a build-id.
func (l *Library) Open(id string) (*os.File, error) {
	if !buildIDForm.MatchString(id) {
		return nil, ErrNotFound
	}
	f, err := os.Open(l.path(id, true))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	return f, err
}
