package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/test/testwait"
)

const tenantName = "tenant"

func everything() store.Query {
	return store.Query{From: storetest.Epoch.Add(-time.Hour), To: storetest.Epoch.Add(24 * time.Hour)}
}

func openOn(t *testing.T, dir string, fs vfs.FS) *Store {
	t.Helper()
	return openAs(t, Options{Dir: dir, Reserve: 1, fs: fs})
}

func openAs(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// step is between windows.
const step = 4 * time.Second

// numbered is a window that is told from others by when it begins.
func numbered(n int) *profile.Window {
	return storetest.Window(uint64(n), "shop", "one", storetest.Epoch.Add(time.Duration(n)*step))
}

func put(s *Store, n int) error {
	return s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, numbered(n)))
}

// there lists which windows are there, each as it was put.
func there(t *testing.T, s *Store, q store.Query) map[int]bool {
	t.Helper()
	seen := map[int]bool{}
	err := s.Scan(context.Background(), tenantName, q, func(w *profile.Window, _ profile.Run) error {
		n := int(w.Start.Sub(storetest.Epoch) / step)
		if diff := profiletest.DiffKept(numbered(n), w); diff != "" {
			t.Errorf("window %d is not what was put:\n%s", n, diff)
		}
		if seen[n] {
			t.Errorf("window %d is there twice", n)
		}
		seen[n] = true
		return nil
	})
	if damaged := (*store.DamagedError)(nil); err != nil && !errors.As(err, &damaged) {
		t.Fatal(err)
	}
	return seen
}

// TestFailingDisk has each kind of write fail for a while. What was refused is
// not counted on, what was acknowledged is there, and later puts work again.
func TestFailingDisk(t *testing.T) {
	for name, fails := range map[string]func(errorfs.Op) bool{
		"log is not synced":  func(o errorfs.Op) bool { return isLog(o) && isSync(o) },
		"log is not written": func(o errorfs.Op) bool { return isLog(o) && o.Kind == errorfs.OpFileWrite },
	} {
		t.Run(name, func(t *testing.T) {
			var bad atomic.Bool
			var hit atomic.Int64
			fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(o errorfs.Op) error {
				if bad.Load() && fails(o) {
					hit.Add(1)
					return errors.New("injected")
				}
				return nil
			}))
			dir := t.TempDir()
			s := openOn(t, dir, fs)
			kept := map[int]bool{}
			for n := range 40 {
				if bad.Store(n%10 >= 7); !bad.Load() {
					waitFor(t, "a disk that works again to be used", func() bool { return put(s, n) == nil })
					kept[n] = true
					continue
				}
				err := put(s, n)
				if kept[n] = err == nil; err != nil && !errors.Is(err, store.ErrFull) {
					t.Fatalf("window %d: %v", n, err)
				}
			}
			if hit.Load() == 0 {
				t.Fatal("no write failed")
			}
			bad.Store(false)
			expect(t, s, kept)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openOn(t, dir, vfs.Default)
			defer s.Close()
			expect(t, s, kept)
		})
	}
}

// TestBreaksWhileHeld has a commit break the database while another call holds it and
// commits, as one that adds up does: that fails, and what comes next is kept.
func TestBreaksWhileHeld(t *testing.T) {
	var bad atomic.Bool
	s := openOn(t, t.TempDir(), errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if bad.Load() && isLog(o) && isSync(o) {
			return errors.New("injected")
		}
		return nil
	})))
	defer s.Close()
	if err := put(s, 0); err != nil {
		t.Fatal(err)
	}
	held, err := s.acquire()
	if err != nil {
		t.Fatal(err)
	}
	of, err := s.tenant(held, tenantName)
	if err != nil {
		t.Fatal(err)
	}
	bad.Store(true)
	if err := put(s, 1); !errors.Is(err, store.ErrFull) {
		t.Errorf("while the log is not synced: %v", err)
	}
	bad.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Longest(t))
	defer cancel()
	if err := s.commit(ctx, of.newCommit()); !errors.Is(err, store.ErrFull) {
		t.Errorf("who holds it and commits: %v", err)
	}
	held.release()
	waitFor(t, "a disk that works again to be used", func() bool { return put(s, 2) == nil })
	expect(t, s, map[int]bool{0: true, 2: true})
}

func isLog(o errorfs.Op) bool { return strings.HasSuffix(o.Path, ".log") }

func isSync(o errorfs.Op) bool {
	return o.Kind == errorfs.OpFileSync || o.Kind == errorfs.OpFileSyncData || o.Kind == errorfs.OpFileSyncTo
}

func expect(t *testing.T, s *Store, kept map[int]bool) {
	t.Helper()
	seen := there(t, s, everything())
	for n, acknowledged := range kept {
		if acknowledged && !seen[n] {
			t.Errorf("window %d was acknowledged, and is gone", n)
		}
	}
}

// TestBrim fills a small disk to its last byte, with no room held back: the log
// is torn, the database opened again once there is room, and nothing lost.
func TestBrim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own takes root")
	}
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 38<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openOn(t, filepath.Join(dir, "store"), vfs.Default)
	defer s.Close()
	kept, n := map[int]bool{}, 0
	var err error
	for ; err == nil; n += 100 {
		var windows []*profile.Window
		for i := n; i < n+100; i++ {
			windows = append(windows, numbered(i))
		}
		if err = s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, windows...)); err == nil {
			for i := n; i < n+100; i++ {
				kept[i] = true
			}
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("on a disk without a byte left: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a disk with room to be used", func() bool { return put(s, n) == nil })
	kept[n] = true
	expect(t, s, kept)
}

// TestOpenedToBeRead opens a store where nothing can be written: what is there is
// served, puts are refused, and work once the disk is as it should be.
func TestOpenedToBeRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own takes root")
	}
	remount := func(dir string, flags uintptr) error {
		return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, "size=64m")
	}
	ballast := func(dir string) string { return filepath.Join(dir, "ballast") }
	for name, disk := range map[string]struct {
		spoil, mend func(dir string) error
		says        string
	}{
		"read-only": {func(dir string) error { return remount(dir, unix.MS_RDONLY) }, func(dir string) error { return remount(dir, 0) }, "mounted read-only"},
		"full":      {func(dir string) error { return fill(ballast(dir)) }, func(dir string) error { return os.Remove(ballast(dir)) }, "are left on the disk"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			options := Options{Dir: filepath.Join(dir, "store"), Reserve: 4 << 20}
			s := openAs(t, options)
			kept := map[int]bool{0: true, 1: true}
			if err := errors.Join(put(s, 0), put(s, 1), s.Close(), disk.spoil(dir)); err != nil {
				t.Fatal(err)
			}
			s = openAs(t, options)
			defer func() { s.Close() }()
			expect(t, s, kept)
			if err := put(s, 2); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), disk.says) {
				t.Errorf("a put: %v", err)
			}
			if _, err := Open(Options{Dir: filepath.Join(dir, "none")}); err == nil {
				t.Error("a store is made where nothing can be written")
			}
			expect(t, s, kept)
			if err := disk.mend(dir); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "a disk that was mended to be used", func() bool { return put(s, 3) == nil })
			kept[3] = true
			expect(t, s, kept)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openAs(t, options)
			expect(t, s, kept)
		})
	}
}

// fill takes all there is of a disk.
func fill(name string) error {
	if err := os.WriteFile(name, make([]byte, 64<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("there was room left: %w", err)
	}
	return nil
}

// TestFailingTables has tables not be written: what is in memory stays there and
// in the log, puts are refused, and work again when tables can be written.
func TestFailingTables(t *testing.T) {
	var bad atomic.Bool
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if bad.Load() && strings.HasSuffix(o.Path, ".sst") && o.Kind == errorfs.OpFileWrite {
			return errors.New("injected")
		}
		return nil
	}))
	s := openOn(t, t.TempDir(), fs)
	defer s.Close()
	kept := map[int]bool{}
	for n := range 5 {
		if err := put(s, n); err != nil {
			t.Fatal(err)
		}
		kept[n] = true
	}
	bad.Store(true)
	if _, err := s.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a put to be refused", func() bool {
		err := put(s, 5)
		kept[5] = kept[5] || err == nil
		return errors.Is(err, store.ErrFull)
	})
	expect(t, s, kept)
	bad.Store(false)
	waitFor(t, "a put to be kept", func() bool { return put(s, 6) == nil })
	kept[6] = true
	expect(t, s, kept)
}

// waitFor tries again and again, but not for ever.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	testwait.Until(t, what, done)
}

// TestDamagedBlock has one block of a table be other bytes: what lies there is
// left out and counted, the rest is served, and puts go on.
func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	flip := &flipped{FS: vfs.Default, bad: &bad}
	dir := t.TempDir()
	s := openOn(t, dir, flip)
	var windows []*profile.Window
	const count = 1800 // of two hours: more than a block holds
	for n := range count {
		windows = append(windows, numbered(n))
	}
	for n := 0; n < count; n += 300 {
		if err := s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, windows[n:n+300]...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	whole, err := s.Merge(context.Background(), tenantName, storetest.Of("cpu", everything()), store.Grouping{})
	if err != nil || whole.Damaged.Count() != 0 || whole.Columns[0].Windows != count {
		t.Fatalf("before anything is damaged: %v", err)
	}
	if err := s.Close(); err != nil { // what it has in memory is not damaged
		t.Fatal(err)
	}
	s = openOn(t, dir, flip)
	defer s.Close()
	if n := len(there(t, s, store.Query{From: storetest.Epoch, To: storetest.Epoch.Add(step)})); n != 1 {
		t.Fatalf("%d windows in the first step", n) // its tables are read before
	}
	bad.Store(true)
	m, err := s.Merge(context.Background(), tenantName, storetest.Of("cpu", everything()), store.Grouping{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Damaged.Count() == 0 || len(m.Columns) != 1 || m.Columns[0].Windows == count {
		t.Fatalf("%d parts are damaged, %d columns", m.Damaged.Count(), len(m.Columns))
	}
	seen := there(t, s, everything())
	if len(seen) != m.Columns[0].Windows {
		t.Errorf("a scan gives %d windows, a merge %d", len(seen), m.Columns[0].Windows)
	}
	if len(seen) < count/4 {
		t.Errorf("%d windows only are left of %d", len(seen), count)
	}
	if rollDamaged(t, s) == 0 || len(stale(t, s)) > 0 {
		t.Errorf("to be added up still: %v", stale(t, s))
	}
	for _, level := range store.RolledUp() { // who reads step by step leaves less out around the damage
		if windows, lost := rolled(t, s, level, ""); windows < len(seen) || windows >= count || lost == 0 {
			t.Errorf("%v: %d windows were added up of %d, %d parts lost", level, windows, len(seen), lost)
		}
	}
	if err := put(s, count); err != nil {
		t.Errorf("put beside what is damaged: %v", err)
	}
}

// TestChecksWhateverIsDamaged damages a table here and there. Whichever block that
// is, of the first windows of a level or the last, a check tells of it and ends.
func TestChecksWhateverIsDamaged(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	flip := &flipped{FS: vfs.Default, bad: &bad}
	// Of a block that is damaged Pebble tries each bit: that takes the square of its size.
	options := Options{Dir: t.TempDir(), Reserve: 1, fs: flip, block: 8 << 10}
	s := openAs(t, options)
	for n := 0; n < 600; n += 300 {
		var windows []*profile.Window
		for i := range 300 {
			w := numbered(n + i)
			w.Target["instance"] = fmt.Sprint(i % 2)
			windows = append(windows, w)
		}
		if err := s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, windows...)); err != nil {
			t.Fatal(err)
		}
	}
	rollAll(t, s)
	if err := errors.Join(s.db.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	bad.Store(true)
	const parts = 6
	for flip.part, flip.parts = 0, parts; flip.part < parts; flip.part++ {
		s, err := Open(options)
		if err != nil {
			continue // it says so
		}
		problems := 0
		if err := s.Check(t.Context(), func(string) { problems++ }); err == nil && (problems == 0 || problems > 1000) {
			t.Errorf("part %d is damaged: %d problems", flip.part, problems)
		} else if _, other := s.Series(t.Context(), tenantName, everything()); err == nil && other != nil && !errors.As(other, new(*store.DamagedError)) {
			t.Errorf("part %d is damaged: its series are not listed: %v", flip.part, other)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// flipped is a file system whose tables have other bytes in their middle, or in
// one of several parts.
type flipped struct {
	vfs.FS
	bad         *atomic.Bool
	part, parts int64
}

func (f *flipped) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return &flippedFile{file, f.bad, info.Size() * (2*f.part + 1) / (2 * max(f.parts, 1))}, nil
}

type flippedFile struct {
	vfs.File
	bad    *atomic.Bool
	middle int64
}

func (f *flippedFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if at := f.middle - offset; f.bad.Load() && at >= 0 && at < int64(n) {
		p[at] ^= 0xff
	}
	return n, err
}

// TestUnloads keeps few stacks in memory, of many services: all is there, and
// new stacks of a service that was unloaded get numbers of their own.
func TestUnloads(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Reserve: 1, Calls: 3000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := map[string]*profile.Window{}
	for round := range 4 {
		for n := range 20 {
			service := fmt.Sprint("service-", n)
			w := storetest.Window(uint64(100*round+n), service, "one", storetest.Epoch.Add(time.Duration(round)*time.Minute))
			want[service+w.Start.String()] = w
			if err := s.Put(context.Background(), tenantName, store.Raw, storetest.Batch(profile.Run{1}, w)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(s.tenants[tenantName].dictionaries); n == 0 || n == 20 {
		t.Errorf("%d dictionaries of 20 are loaded: %d calls", n, s.calls.Load())
	}
	err = s.Scan(context.Background(), tenantName, everything(), func(w *profile.Window, _ profile.Run) error {
		name := w.Target[store.ServiceLabel] + w.Start.In(time.UTC).String()
		if diff := profiletest.DiffKept(want[name], w); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		delete(want, name)
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("%d windows are missing: %v", len(want), err)
	}
	if loaded := s.calls.Load(); loaded > 3000 {
		t.Errorf("%d calls are loaded", loaded)
	}
}
