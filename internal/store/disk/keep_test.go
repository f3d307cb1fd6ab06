package disk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

const tenant = "tenant"

func always() store.Query {
	return store.Query{From: storetest.Epoch.Add(-time.Hour), To: storetest.Epoch.Add(24 * time.Hour)}
}

func open(t *testing.T, dir string) *disk.Store {
	t.Helper()
	s, err := disk.Open(disk.Options{Dir: dir, Reserve: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func scan(t *testing.T, s store.Store) map[string]*profile.Window {
	t.Helper()
	windows := map[string]*profile.Window{}
	err := s.Scan(context.Background(), tenant, always(), func(w *profile.Window, _ profile.Run) error {
		name := w.Target["instance"] + w.Start.Format(time.RFC3339Nano)
		if windows[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		windows[name] = w
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return windows
}

// TestPartsOutliveRestart puts windows that were added up, opens the directory
// again, and puts one of them alone: it is known to be there.
func TestPartsOutliveRestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var windows []*profile.Window
	for i, instance := range []string{"one", "two"} {
		w := storetest.Window(uint64(i), "shop", instance, storetest.Epoch)
		w.Types = w.Types[:1]
		w.Rows = w.Rows.Only(0)
		windows = append(windows, w)
	}
	put := func(b *store.Batch) {
		t.Helper()
		if err := s.Put(context.Background(), tenant, store.Raw, b); err != nil {
			t.Fatal(err)
		}
	}
	put(storetest.Added(profile.Run{1}, windows...))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer s.Close()
	put(storetest.Batch(profile.Run{1}, windows[0]))
	if n := len(scan(t, s)); n != 1 {
		t.Errorf("%d windows are there, want the one that contains both", n)
	}
}

// TestOpenedAgain puts some windows, opens the directory again and puts more of
// the same stacks without explaining them: all are there, with their names.
func TestOpenedAgain(t *testing.T) {
	dir := t.TempDir()
	var all []*profile.Window
	for life := range uint64(4) {
		s := open(t, dir)
		w := storetest.Window(life%2, "shop", fmt.Sprint(life), storetest.Epoch)
		all = append(all, w)
		b := storetest.Batch(profile.Run{1}, w)
		if life >= 2 {
			b.Forest = nil
		}
		if err := s.Put(context.Background(), tenant, store.Raw, b); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		got := scan(t, s)
		for i, w := range all {
			g := got[fmt.Sprint(i)+w.Start.Format(time.RFC3339Nano)]
			if g == nil {
				t.Fatalf("life %d: window %d is not there", life, i)
			}
			if diff := profiletest.DiffKept(w, g); diff != "" {
				t.Errorf("life %d, window %d:\n%s", life, i, diff)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills a small disk of its own: puts are refused before the
// database would break, what was kept stays, and with room there are more. Old
// days can be dropped all the same.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, err := disk.Open(disk.Options{Dir: filepath.Join(dir, "store"), Reserve: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(seed uint64) error {
		return s.Put(context.Background(), tenant, store.Raw, storetest.Batch(profile.Run{1}, storetest.Window(seed, "shop", fmt.Sprint(seed), storetest.Epoch)))
	}
	if err := put(1); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 58<<20), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := put(2); !errors.Is(err, store.ErrFull) {
		t.Errorf("on a full disk: %v", err)
	}
	if n := len(scan(t, s)); n != 1 {
		t.Errorf("%d windows are there, want the one that was kept", n)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := put(2); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if n := len(scan(t, s)); n != 2 {
		t.Errorf("%d windows are there, want 2", n)
	}
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ballast, make([]byte, int64(at.Bavail)*at.Bsize-4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := put(3); !errors.Is(err, store.ErrFull) {
		t.Errorf("on a disk that is full again: %v", err)
	}
	if err := s.Drop(context.Background(), tenant, store.Raw, storetest.Epoch.Add(48*time.Hour)); err != nil {
		t.Errorf("drop days on a full disk: %v", err)
	}
	if n := len(scan(t, s)); n != 0 {
		t.Errorf("%d windows are there that were dropped", n)
	}
}

// childDir tells a test's child where to put windows until it is killed.
const childDir = "ATYS_STORE_CHILD"

// TestKilled kills a process that puts windows, again and again: each that was
// acknowledged is there, once.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		putForEver(t, dir)
	}
	dir := t.TempDir()
	acknowledged := map[string]bool{}
	for life := range 6 {
		child := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
		child.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("ATYS_STORE_LIFE=%d", life))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 20+7*life && lines.Scan(); n++ {
			acknowledged[lines.Text()] = true
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // said before the end
			acknowledged[lines.Text()] = true
		}
		_ = child.Wait() // it was killed
	}
	s := open(t, dir)
	defer s.Close()
	there := scan(t, s)
	for name := range acknowledged {
		if there[name] == nil {
			t.Errorf("%s was acknowledged, and is gone", name)
		}
	}
	if len(acknowledged) < 200 {
		t.Errorf("%d windows only were acknowledged", len(acknowledged))
	}
}

func putForEver(t *testing.T, dir string) {
	s := open(t, dir)
	life := os.Getenv("ATYS_STORE_LIFE")
	for i := uint64(0); ; i++ {
		w := storetest.Window(i, "shop", life+".", storetest.Epoch.Add(time.Duration(i)*time.Second))
		if err := s.Put(context.Background(), tenant, store.Raw, storetest.Batch(profile.Run{1}, w)); err != nil {
			t.Fatal(err)
		}
		fmt.Println(life + "." + w.Start.Format(time.RFC3339Nano))
	}
}

// TestDamagedFile overwrites the middle of the database's files: opening or
// asking says so, or gives what is whole; never something else.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var batch []*profile.Window
	for i := range uint64(300) {
		batch = append(batch, storetest.Window(i, "shop", "one", storetest.Epoch.Add(time.Duration(i)*time.Second)))
	}
	if err := s.Put(context.Background(), tenant, store.Raw, storetest.Batch(profile.Run{1}, batch...)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.[sl][so][tg]")) // tables and logs
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := len(data) / 2; i < len(data)/2+100 && i < len(data); i++ {
			data[i] ^= 0x5a
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err = disk.Open(disk.Options{Dir: dir, Reserve: 1 << 20})
	if err != nil {
		return // it says so
	}
	defer s.Close()
	n := 0
	err = s.Scan(context.Background(), tenant, always(), func(w *profile.Window, _ profile.Run) error {
		n++
		i := int(w.Start.Sub(storetest.Epoch) / time.Second)
		if diff := profiletest.DiffKept(batch[i], w); diff != "" {
			t.Errorf("window %d is not what was put:\n%s", i, diff)
		}
		return nil
	})
	if err == nil && n == len(batch) && !strings.Contains(strings.Join(files, " "), ".log") {
		t.Error("nothing was noticed")
	}
}
