package debugfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"atys.dev/atys/internal/atomicfile"
	"atys.dev/atys/internal/binfile"
)

const (
	maxDownload     = 4 << 30 // bytes of a debug file; Chromium's has some 3 GiB
	downloadTimeout = 90 * time.Second
	missingFor      = 24 * time.Hour  // how long a server's "not found" is believed
	failedFor       = 5 * time.Minute // how long a server that failed is left alone
	userAgent       = "atys"
)

// errMissing says that the servers were asked and do not have a file.
var errMissing = errors.New("not on the server")

// What servers have of a build-id, as they call it.
const (
	debugInfo  = "debuginfo"
	executable = "executable"
)

const executableSuffix = ".executable"

// download asks the servers, one after the other. That none has the file is
// remembered on disk, that one could not be reached is not.
func (f *Finder) download(ctx context.Context, id, what string) (*binfile.File, error) {
	if len(f.Servers) == 0 || !buildIDForm.MatchString(id) {
		return nil, fmt.Errorf("build-id %q: %w", id, ErrNotFound)
	}
	dir := f.CacheDir
	if dir == "" {
		temp, err := os.MkdirTemp("", "atys-debug-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(temp) // an open file outlives its name
		dir = temp
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := id + debugSuffix
	if what == executable {
		name = id + executableSuffix
	}
	path := filepath.Join(dir, name)
	if d := openIf(path, id); d != nil {
		now := f.now()
		os.Chtimes(path, now, now) // the cache drops what was not used for longest
		return d, nil
	}
	missing := filepath.Join(dir, strings.TrimSuffix(name, debugSuffix)+".missing")
	if info, err := os.Stat(missing); err == nil && f.now().Sub(info.ModTime()) < missingFor {
		return nil, fmt.Errorf("build-id %q: %w", id, ErrNotFound)
	}
	var failed error
	for _, server := range f.Servers {
		if f.failing(server) {
			failed = fmt.Errorf("%s failed a moment ago", server)
			continue
		}
		err := f.fetch(ctx, server, id, what, path)
		if err == nil {
			if d := openIf(path, id); d != nil {
				return d, nil
			}
			os.Remove(path)
			err = fmt.Errorf("%s sent a file with another build-id", server)
		}
		if ctx.Err() != nil { // that we wait no longer says nothing of the server
			return nil, ctx.Err()
		}
		if !errors.Is(err, errMissing) {
			failed = err
			f.setFailing(server)
		}
	}
	if failed != nil {
		return nil, fmt.Errorf("download %s of %q: %w", what, id, failed)
	}
	if err := os.WriteFile(missing, nil, 0o600); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("build-id %q: %w", id, ErrNotFound)
}

func (f *Finder) fetch(ctx context.Context, server, id, what, path string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	address, err := url.JoinPath(server, "buildid", id, what)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(address, "http://") && !strings.HasPrefix(address, "https://") {
		return fmt.Errorf("server %q: neither http nor https", server)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", userAgent)
	client := f.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return errMissing
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %q", server, response.Status)
	}
	return atomicfile.Write(path, &bounded{response.Body, maxDownload})
}

// bounded fails behind so many bytes, where a reader would just end.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, fmt.Errorf("the file has more than %d bytes", int64(maxDownload))
	}
	return n, err
}

// failing tells whether a server failed lately: naming must not wait for a
// timeout once per file.
func (f *Finder) failing(server string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.failed[server]
	return ok && f.now().Sub(at) < failedFor
}

func (f *Finder) setFailing(server string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = map[string]time.Time{}
	}
	f.failed[server] = f.now()
}

func (f *Finder) now() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}
