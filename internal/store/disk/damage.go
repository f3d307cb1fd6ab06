package disk

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// sparingFS does not read again what was found damaged. Pebble tries of a block
// whose checksum is wrong whether any one bit of it fell over, which takes seconds
// each time: a question that meets the block a hundred times would take minutes.
type sparingFS struct {
	vfs.FS

	mu      sync.Mutex
	damaged map[blockPlace]bool
}

// blockPlace is where in a table a block begins.
type blockPlace struct {
	table  string
	offset int64
}

// inBlock is how Pebble says where it found the damage.
var inBlock = regexp.MustCompile(`\bblock (\d+)/\d+: \S+ checksum mismatch`)

// errDamagedBlock is what reads give of a block that is known.
var errDamagedBlock = fmt.Errorf("%w: of a block that is known to be damaged", pebble.ErrCorruption)

// learn remembers what is damaged, and tells whether that is news.
func (s *sparingFS) learn(i pebble.DataCorruptionInfo) bool {
	at := inBlock.FindStringSubmatch(fmt.Sprint(i.Details))
	if at == nil {
		return !strings.Contains(fmt.Sprint(i.Details), errDamagedBlock.Error())
	}
	offset, err := strconv.ParseInt(at[1], 10, 64)
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged == nil {
		s.damaged = map[blockPlace]bool{}
	}
	s.damaged[blockPlace{filepath.Base(i.Path), offset}] = true
	return true
}

func (s *sparingFS) known(p blockPlace) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged[p]
}

// Open opens a file, of which blocks are read if it is a table.
func (s *sparingFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := s.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return &sparedFile{file, s, filepath.Base(name)}, nil
}

type sparedFile struct {
	vfs.File
	of   *sparingFS
	name string
}

func (f *sparedFile) ReadAt(p []byte, offset int64) (int, error) {
	if f.of.known(blockPlace{f.name, offset}) {
		return 0, errDamagedBlock
	}
	return f.File.ReadAt(p, offset)
}
