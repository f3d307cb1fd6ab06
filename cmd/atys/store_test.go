package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

// TestStore counts, checks, backs up and restores a store.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	data, backup, other := filepath.Join(dir, "data"), filepath.Join(dir, "backup"), filepath.Join(dir, "other")
	stat := func(data string) (string, error) {
		var said strings.Builder
		err := withStore(data, func(s *disk.Store) error { return statStore(t.Context(), s, &said) })
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
	if err != nil || !strings.Contains(want, "tenant default: 12 series") || !strings.Contains(want, "12 windows") || !strings.Contains(want, "most of shop") {
		t.Fatalf("it has %s, %v", want, err)
	}
	if err := withStore(data, func(s *disk.Store) error { return s.Backup(backup) }); err != nil {
		t.Fatal(err)
	}
	if err := restoreStore(t.Context(), backup, other); err != nil {
		t.Fatal(err)
	}
	if got, err := stat(other); err != nil || got[strings.Index(got, "\n"):] != want[strings.Index(want, "\n"):] {
		t.Errorf("restored is %s, %v; want %s", got, err, want)
	}
	if err := restoreStore(t.Context(), backup, other); err == nil || !strings.Contains(err.Error(), "a store already") {
		t.Errorf("restored over another: %v", err)
	}
	if err := restoreStore(t.Context(), dir, filepath.Join(dir, "third")); err == nil || !strings.Contains(err.Error(), "no backup") {
		t.Errorf("restored what is no backup: %v", err)
	}
	tables, err := filepath.Glob(filepath.Join(backup, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("the backup has no tables: %v", err)
	}
	for _, table := range tables {
		if err := os.Truncate(table, 100); err != nil {
			t.Fatal(err)
		}
	}
	third := filepath.Join(dir, "third")
	if err := restoreStore(t.Context(), backup, third); err == nil {
		t.Error("restored a damaged backup")
	}
	if _, err := os.Stat(storeIn(third)); err == nil {
		t.Error("and left it there")
	}
}
