package lang

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sync"

	"atys.dev/atys/internal/binfile"
)

// ErrNever is in the error of a Read that would fail again however often it
// was tried: of a version that is not supported, or a file that lacks what is
// needed.
var ErrNever = errors.New("this runtime cannot be read")

// Never marks an error as one that would come again: it is ErrNever.
func Never(err error) error {
	if err == nil || errors.Is(err, ErrNever) {
		return err
	}
	return never{err}
}

type never struct{ error }

func (n never) Unwrap() error        { return n.error }
func (n never) Is(target error) bool { return target == ErrNever }

// Read reads the runtime of a process in two steps: first what its file tells,
// which is kept in the file's Notes, then what only the process does. An error
// says which runtime in which file.
func Read[T any](m Mapped, runtime string, ofFile func(*binfile.File) (T, error), ofProcess func(Mapped, T) (Walked, error)) (Walked, error) {
	told, err := Noted(m, ofFile)
	if err != nil {
		return nil, fmt.Errorf("read %s in %q: %w", runtime, m.Path, err)
	}
	found, err := ofProcess(m, told)
	if err != nil {
		return nil, fmt.Errorf("read %s in %q: %w", runtime, m.Path, err)
	}
	return found, nil
}

// Notes keep what a file of a runtime tells, which is the same for all
// processes that map it: of node 26 it takes 25 ms of CPU time to read
// (BenchmarkRead of package unwind). They are of one file, and go with who
// holds them. The zero value is empty, and may be used concurrently.
type Notes struct {
	// mu guards kept. It is held while the file is read, so that who wants to
	// know the same meanwhile waits for it.
	mu   sync.Mutex
	kept map[reflect.Type]note // by what is told: a file may hold several runtimes
}

// note is what a file told, or why it did not.
type note struct {
	told any
	err  error
}

// Noted gives what a file tells: read now, or as it was noted when another
// process mapped it. What is told must not be changed.
//
// What a file does not tell it never will, so read's errors are ErrNever, and
// noted too; but not those of opening the file or reading its bytes.
func Noted[T any](m Mapped, read func(*binfile.File) (T, error)) (T, error) {
	if m.Notes == nil {
		return readFile(m, read)
	}
	m.Notes.mu.Lock()
	defer m.Notes.mu.Unlock()
	of := reflect.TypeFor[T]()
	if n, ok := m.Notes.kept[of]; ok {
		told, _ := n.told.(T)
		return told, n.err
	}
	told, err := readFile(m, read)
	if err != nil && !errors.Is(err, ErrNever) {
		return told, err
	}
	if m.Notes.kept == nil {
		m.Notes.kept = map[reflect.Type]note{}
	}
	m.Notes.kept[of] = note{told, err}
	return told, err
}

func readFile[T any](m Mapped, read func(*binfile.File) (T, error)) (told T, err error) {
	file, err := m.Open()
	if err != nil {
		return told, err
	}
	f, err := binfile.FromFile(file)
	if err != nil {
		return told, err
	}
	defer f.Close()
	told, err = read(f)
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
		return told, err
	}
	return told, Never(err)
}
