package main

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

// TestStore counts, checks, backs up and restores a store.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	data, copied, other := filepath.Join(dir, "data"), filepath.Join(dir, "backup"), filepath.Join(dir, "other")
	stat := func(data string) (string, error) {
		var said strings.Builder
		err := readStore(data, func(s *disk.Store) error {
			all, err := s.Stat(t.Context())
			if err != nil {
				return err
			}
			return writeStat(&said, all)
		})
		return said.String(), err
	}
	if _, err := stat(data); err == nil || !strings.Contains(err.Error(), "there is no store") {
		t.Errorf("no store: %v", err)
	}
	s, err := disk.Open(disk.Options{Dir: storeIn(data)})
	if err != nil {
		t.Fatal(err)
	}
	var windows []*profile.Window
	for i := range uint64(12) {
		windows = append(windows, storetest.Window(i, "shop", fmt.Sprint(i), storetest.Epoch.Add(time.Duration(i)*time.Second)))
	}
	if err := s.Put(t.Context(), "default", store.Raw, storetest.Batch(profile.Run{1}, windows...)); err != nil {
		t.Fatal(err)
	}
	if _, err := stat(data); err == nil {
		t.Error("it was opened twice")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := stat(data)
	if err != nil || !strings.Contains(want, ", 12 series, ") || !strings.Contains(want, "12 windows") || !strings.Contains(want, "most of shop") {
		t.Fatalf("it has %s, %v", want, err)
	}
	profile := filepath.Join("default", "shells.json")
	if err := os.MkdirAll(filepath.Join(data, profilesDir, "default"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, profilesDir, profile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := func(dir string) (*backup.Contents, error) { return backUpClosed(t.Context(), data, dir) }
	if err := backUp(t.Context(), copied, false, closed); err != nil {
		t.Fatal(err)
	}
	if err := backUp(t.Context(), copied, false, closed); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("backed up over another: %v", err)
	}
	lookedAt(t, copied)
	if err := restoreStore(t.Context(), copied, other, false); err != nil {
		t.Fatal(err)
	}
	if got, err := stat(other); err != nil || got[strings.Index(got, "\n"):] != want[strings.Index(want, "\n"):] {
		t.Errorf("restored is %s, %v; want %s", got, err, want)
	}
	if text, err := os.ReadFile(filepath.Join(other, profilesDir, profile)); err != nil || string(text) != "{}" {
		t.Errorf("a profile is restored as %q, %v", text, err)
	}
	if err := restoreStore(t.Context(), copied, other, false); err == nil || !strings.Contains(err.Error(), "something already") {
		t.Errorf("restored over another: %v", err)
	}
	if err := restoreStore(t.Context(), dir, filepath.Join(dir, "third"), false); err == nil || !strings.Contains(err.Error(), "no backup") {
		t.Errorf("restored what is no backup: %v", err)
	}
	tables, err := filepath.Glob(filepath.Join(copied, backup.Store, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("the backup has no tables: %v", err)
	}
	third := filepath.Join(dir, "third")
	for _, table := range tables { // as a disk may, so that the size stays
		data, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(data), 2000) {
			data[i] ^= 0xff
		}
		if err := os.WriteFile(table, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := restoreStore(t.Context(), copied, third, false); err == nil || !strings.Contains(err.Error(), "not restored") {
		t.Errorf("restored a damaged backup: %v", err)
	}
	if err := os.Truncate(tables[0], 100); err != nil {
		t.Fatal(err)
	}
	if err := restoreStore(t.Context(), copied, third, false); err == nil || !strings.Contains(err.Error(), "the backup is damaged") {
		t.Errorf("restored one with a file that is too short: %v", err)
	}
	if left, err := os.ReadDir(third); err != nil || len(left) != 0 {
		t.Errorf("and left %v there, %v", left, err)
	}
}

// lookedAt has a backup be counted and checked: nothing of it changes, or it would
// be called damaged when it is restored.
func lookedAt(t *testing.T, data string) {
	t.Helper()
	before := filesIn(t, data)
	err := readStore(data, func(s *disk.Store) error {
		if all, err := s.Stat(t.Context()); err != nil || len(all.Tenants) != 1 {
			t.Errorf("the backup has %+v, %v", all, err)
		}
		return checkStore(t.Context(), s, io.Discard)
	})
	if err != nil {
		t.Errorf("check the backup: %v", err)
	}
	if after := filesIn(t, data); !maps.Equal(before, after) {
		t.Errorf("who looked at a backup has changed it: %v, before %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
}

// filesIn gives what lies in a directory, and below.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
