// Package debugfile finds the separate files in which distributions keep the
// symbols and lines of a binary.
//
// The flow of Find, the first hit wins; only a file with the wanted build-id
// (or, for a debug link, the wanted checksum) counts:
//
//  1. By build-id below each debug directory, .build-id/xx/yyyy.debug, and among
//     what was downloaded before.
//  2. By debug link: next to the binary, in .debug next to it, and below each
//     debug directory under the binary's own directory.
//  3. From debuginfod servers, if any were given, kept in a cache on disk.
//
// FindAlt looks for the file that dwz factored out of several debug files.
package debugfile

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile"
)

// ErrNotFound is what Find wraps when there is no debug file.
var ErrNotFound = errors.New("no debug file")

// Finder looks for debug files. The zero value looks below /usr/lib/debug and
// asks no server. Its exported fields must not change once it is used; then it is
// safe for concurrent use.
type Finder struct {
	Dirs     []string // nil is /usr/lib/debug
	Servers  []string // URLs of debuginfod servers
	Client   *http.Client
	CacheDir string // downloads are kept here, and thrown away if it is ""
	Now      func() time.Time

	mu     sync.Mutex
	failed map[string]time.Time // guarded by mu: when a server could not be reached
}

const defaultDir = "/usr/lib/debug"

// Build-ids become parts of paths and URLs; ours of other forms have no files.
var buildIDForm = regexp.MustCompile(`^[0-9a-f]{8,128}$`)

func (f *Finder) dirs() []string {
	if f.Dirs == nil {
		return []string{defaultDir}
	}
	return f.Dirs
}

// Find opens the debug file of a binary that lies at path, as far as known ("").
func (f *Finder) Find(ctx context.Context, b *binfile.File, path string) (*binfile.File, error) {
	if d := f.FindLocal(b, path); d != nil {
		return d, nil
	}
	return f.download(ctx, b.BuildID(), debugInfo)
}

// FindLocal is Find without asking servers; nil if the file is not on this machine.
func (f *Finder) FindLocal(b *binfile.File, path string) *binfile.File {
	if d := f.local(b.BuildID()); d != nil {
		return d
	}
	return f.byLink(b, path)
}

// Executable asks the servers for the executable of a build-id, which is kept in
// the cache. The caller closes it.
func (f *Finder) Executable(ctx context.Context, id string) (*os.File, error) {
	if f.CacheDir == "" {
		return nil, ErrNotFound
	}
	b, err := f.download(ctx, id, executable)
	if err != nil {
		return nil, err
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(f.CacheDir, id+executableSuffix))
}

// Downloaded opens the executable of a build-id that Executable has got before.
// The caller closes it.
func (f *Finder) Downloaded(id string) (*os.File, error) {
	if path := f.cached(id, executableSuffix); path != "" {
		return os.Open(path)
	}
	return nil, ErrNotFound
}

// Local tells where Find would find a file by build-id without asking a server;
// "" if nowhere. It only looks for the name.
func (f *Finder) Local(buildID string) string {
	if !buildIDForm.MatchString(buildID) {
		return ""
	}
	for _, dir := range f.dirs() {
		path := filepath.Join(dir, ".build-id", buildID[:2], buildID[2:]+debugSuffix)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return f.cached(buildID, debugSuffix)
}

// cached is where a file of a build-id was downloaded to; "": it was not.
func (f *Finder) cached(buildID, suffix string) string {
	if f.CacheDir == "" || !buildIDForm.MatchString(buildID) {
		return ""
	}
	path := filepath.Join(f.CacheDir, buildID+suffix)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func (f *Finder) local(id string) *binfile.File {
	path := f.Local(id)
	if path == "" {
		return nil
	}
	if path == f.cached(id, debugSuffix) {
		now := f.now()
		_ = os.Chtimes(path, now, now) // the cache drops what was not used for longest
	}
	return openIf(path, id)
}

// openIf opens a file that has a build-id; nil if it does not.
func openIf(path, id string) *binfile.File {
	d, err := binfile.Open(path)
	if err != nil {
		return nil
	}
	if d.BuildID() != id {
		d.Close()
		return nil
	}
	return d
}

func (f *Finder) byLink(b *binfile.File, path string) *binfile.File {
	name, crc, ok := b.DebugLink()
	if !ok || path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	candidates := []string{filepath.Join(dir, name), filepath.Join(dir, ".debug", name)}
	for _, root := range f.dirs() {
		candidates = append(candidates, filepath.Join(root, dir, name))
	}
	for _, candidate := range candidates {
		if d := openChecked(candidate, crc); d != nil {
			return d
		}
	}
	return nil
}

// openChecked opens a file whose content has a checksum; nil if it does not.
func openChecked(path string, crc uint32) *binfile.File {
	d, err := binfile.Open(path)
	if err != nil {
		return nil
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(d, 0, d.Size())); err != nil || sum.Sum32() != crc {
		d.Close()
		return nil
	}
	return d
}

// FindAlt opens the file that a debug file, which lies at path as far as known,
// shares with others.
func (f *Finder) FindAlt(ctx context.Context, d *binfile.File, path string) (*binfile.File, error) {
	link, id, ok := d.AltLink()
	if !ok {
		return nil, fmt.Errorf("no shared debug file: %w", ErrNotFound)
	}
	if a := f.local(id); a != nil {
		return a, nil
	}
	candidates := []string{link}
	if !filepath.IsAbs(link) {
		candidates = nil
		if path != "" {
			candidates = append(candidates, filepath.Join(filepath.Dir(path), link))
		}
	}
	for _, dir := range f.dirs() {
		candidates = append(candidates, filepath.Join(dir, ".dwz", filepath.Base(link)))
	}
	for _, candidate := range candidates {
		if a := openIf(candidate, id); a != nil {
			return a, nil
		}
	}
	return f.download(ctx, id, debugInfo)
}
