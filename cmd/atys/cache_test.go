package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestCacheFlags(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	in := filepath.Join(home, "atys", "symbols")
	for _, tc := range []struct {
		size, dir string
		limit     int64
		says      string
	}{
		{size: "", dir: in, limit: 1e9},
		{size: "500MB", dir: in, limit: 500e6},
		{size: "0"},
		{size: "1MB", says: "want 16 MB or more, or 0"},
		{size: "much", says: "--cache-size"},
		{size: "-1GB", says: "--cache-size"},
	} {
		dir, limit, err := (&cacheFlags{size: tc.size}).place()
		var usage *usageError
		if tc.says != "" {
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q: %v", tc.size, err)
			}
			continue
		}
		if err != nil || dir != tc.dir || limit != tc.limit {
			t.Errorf("%q: %q, %d, %v", tc.size, dir, limit, err)
		}
	}
}
