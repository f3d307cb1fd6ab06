package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

// kept is the data of a server: a store of a window, and a profile.
func kept(t *testing.T) (data string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "data")
	s, err := disk.Open(disk.Options{Dir: storeIn(data), Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "default", store.Raw, storetest.Batch(profile.Run{1}, storetest.Window(1, "shop", "one", storetest.Epoch))); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ordered(t, data, "{}")
	return data
}

// ordered has somebody have ordered a profile.
func ordered(t *testing.T, data, text string) {
	t.Helper()
	name := filepath.Join(data, profilesDir, "default", "shells.json")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func backedUp(t *testing.T, dir string) {
	t.Helper()
	data := kept(t)
	if err := backUp(t.Context(), dir, false, func(dir string) (*backup.Contents, error) { return backUpClosed(t.Context(), data, dir) }); err != nil {
		t.Fatal(err)
	}
}

// TestBackUpWithASlash takes the name of a directory as shells complete it.
func TestBackUpWithASlash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	backedUp(t, dir+"/")
	if _, err := backup.Read(dir); err != nil {
		t.Error(err)
	}
}

// TestBackupsLast has the names of what is put in place be on disk: the directory
// that they are in is opened after each, to be synced.
func TestBackupsLast(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "backup")
	if names := renamedInto(t, above, func() { backedUp(t, dir) }); !slices.Equal(names, []string{"backup", ""}) {
		t.Errorf("a backup: %q", names)
	}
	data := t.TempDir()
	restore := func() {
		if err := restoreStore(t.Context(), dir, data, false); err != nil {
			t.Fatal(err)
		}
	}
	if names := renamedInto(t, data, restore); !slices.Equal(names, []string{profilesDir, "", "store", ""}) {
		t.Errorf("what is restored: %q", names)
	}
}

// renamedInto lists what is renamed into a directory while something is done, and,
// as "", when the directory is opened after that.
func renamedInto(t *testing.T, dir string, do func()) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_OPEN|unix.IN_ONLYDIR); err != nil {
		t.Fatal(err)
	}
	do()
	buffer := make([]byte, 1<<20)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		t.Fatal(err)
	}
	for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&rest[0]))
		name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:][:event.Len]), "\x00")
		switch {
		case event.Mask&unix.IN_MOVED_TO != 0:
			names = append(names, name)
		case name == "" && len(names) > 0 && names[len(names)-1] != "":
			names = append(names, "")
		}
		rest = rest[unix.SizeofInotifyEvent+event.Len:]
	}
	return names
}

// TestRestoreAgain restores after a machine crashed before the store was in place,
// and refuses where the profiles that are there are others.
func TestRestoreAgain(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "backup"), t.TempDir()
	backedUp(t, dir)
	ordered(t, data, "others")
	if err := restoreStore(t.Context(), dir, data, false); err == nil || !strings.Contains(err.Error(), "something already") {
		t.Errorf("over other profiles: %v", err)
	}
	ordered(t, data, "{}")
	if err := restoreStore(t.Context(), dir, data, false); err != nil {
		t.Fatal(err)
	}
	if err := readStore(data, func(s *disk.Store) error { return nil }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 2 {
		t.Errorf("there are %v, %v", left, err)
	}
}
