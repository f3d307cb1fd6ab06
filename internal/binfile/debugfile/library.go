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

	"atys.dev/atys/internal/binfile"
)

// Library is a directory of files that were given to us, by their build-ids: the
// executables themselves, and their debug files where a Finder looks for them.
type Library struct {
	Dir   string
	Bytes int64 // that all of them may have
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

const debugSuffix = ".debug"

func (l *Library) path(id string, executable bool) string {
	name := id[2:]
	if !executable {
		name += debugSuffix
	}
	return filepath.Join(l.Dir, ".build-id", id[:2], name)
}

// Keep keeps a file under the build-id that it tells. One that is there already
// is replaced.
func (l *Library) Keep(content io.Reader) (k Kept, err error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return k, err
	}
	room, err := l.room()
	if err != nil {
		return k, err
	}
	temp, err := os.CreateTemp(l.Dir, ".upload-*")
	if err != nil {
		return k, err
	}
	defer os.Remove(temp.Name()) // if it was not put in place
	k.Bytes, err = io.Copy(temp, io.LimitReader(content, room+1))
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return k, err
	}
	if k.Bytes > room {
		return k, ErrLibraryFull
	}
	f, err := binfile.Open(temp.Name())
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
	path := l.path(k.BuildID, k.Executable)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return k, err
	}
	return k, os.Rename(temp.Name(), path)
}

// holdsCode tells an executable from its debug file, whose sections of code are
// empty.
func holdsCode(f *binfile.File) bool {
	return len(f.Executable()) > 0 && !slices.ContainsFunc(f.ELF.Sections, func(s *elf.Section) bool {
		return s.Flags&elf.SHF_EXECINSTR != 0 && s.Type == elf.SHT_NOBITS
	})
}

// room is how many more bytes may be kept.
func (l *Library) room() (int64, error) {
	all, err := l.List()
	room := l.Bytes
	for _, k := range all {
		room -= k.Bytes
	}
	return max(room, 0), err
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
