package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/spec"
)

// cacheFlags say how much is kept on disk of what took time to find out: unwinding
// tables, names, debug files from servers.
type cacheFlags struct {
	size string // empty: defaultCache
}

const (
	defaultCache = "1GB"
	leastCache   = 16e6 // below, the tables of one large program would not fit
)

func (f *cacheFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.size, "cache-size", defaultCache, "disk space for unwinding tables, symbols and downloaded debug files, in $XDG_CACHE_HOME/atys or ~/.cache/atys; the least recently used go first; 0 keeps none")
}

// place is where the cache is, and how many bytes it may have; an empty directory
// keeps none.
func (f *cacheFlags) place() (dir string, limit int64, err error) {
	if limit, err = spec.ParseBytes(cmp.Or(f.size, defaultCache)); err != nil {
		return "", 0, &usageError{fmt.Errorf("--cache-size %w", err)}
	}
	if limit == 0 {
		return "", 0, nil
	}
	if limit < leastCache {
		return "", 0, &usageError{fmt.Errorf("--cache-size %s: want %d MB or more, or 0 for no cache", f.size, int64(leastCache/1e6))}
	}
	return cacheDir(), limit, nil
}

// cacheDir is where the cache is; empty if the user has no such place.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "atys", "symbols")
}
