package spool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, dir string, limit int64) *Spool {
	t.Helper()
	s, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func add(t *testing.T, s *Spool, records ...string) ID {
	t.Helper()
	var data [][]byte
	for _, r := range records {
		data = append(data, []byte(r))
	}
	id, err := s.Add(data)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// drain takes everything, oldest first.
func drain(t *testing.T, s *Spool) (records []string) {
	t.Helper()
	for ids := s.Oldest(1); len(ids) > 0; ids = s.Oldest(1) {
		data, err := s.Read(ids[0])
		var damaged *DamagedError
		if err != nil && !errors.As(err, &damaged) {
			t.Fatal(err)
		}
		for _, r := range data {
			records = append(records, string(r))
		}
		if err := s.Done(ids[0]); err != nil {
			t.Fatal(err)
		}
	}
	return records
}

func TestKeepsOrderOverRestarts(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for life := range 3 {
		s := open(t, dir, 1<<20)
		for i := range 5 {
			record := fmt.Sprintf("%d.%d", life, i)
			want = append(want, record, "")
			add(t, s, record, "")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir, 1<<20)
	if got := s.Stats(); got.Records != len(want) || got.Bundles != 15 {
		t.Errorf("%+v, want %d records", got, len(want))
	}
	if got := drain(t, s); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.Stats(); got != (Stats{}) {
		t.Errorf("emptied: %+v", got)
	}
}

func TestOldestMakeRoom(t *testing.T) {
	dir := t.TempDir()
	one := int64(len(encode([][]byte{make([]byte, 100)})))
	s := open(t, dir, 3*one)
	for i := range 10 {
		add(t, s, fmt.Sprintf("%0100d", i))
	}
	if got := s.Stats(); got.Dropped != 7 || got.Records != 3 || got.Bytes > 3*one {
		t.Errorf("%+v, want 7 dropped and 3 left", got)
	}
	if got := drain(t, s); len(got) != 3 || got[0] != fmt.Sprintf("%0100d", 7) {
		t.Errorf("left are %q", got)
	}
	if _, err := s.Add([][]byte{make([]byte, 4*one)}); err == nil {
		t.Error("more than the whole spool was taken")
	}
	for i := range 3 {
		add(t, s, fmt.Sprintf("%0100d", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, dir, one).Stats(); got.Dropped != 7+2 || got.Records != 1 {
		t.Errorf("opened with less room: %+v, want 2 more dropped", got)
	}
}

func TestUnfinishedIsRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, bundle{id: 3, records: 1}.name()+unfinished)
	if err := os.WriteFile(path, []byte(magic), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, 1<<20)
	if got := drain(t, s); len(got) > 0 {
		t.Errorf("read %q of a bundle that was never finished", got)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file is still there: %v", err)
	}
}

// TestDamage breaks each byte of a bundle in turn: what is served is what was
// written, what is not is counted, and the file is kept aside.
func TestDamage(t *testing.T) {
	written := []string{"first", "second", "third"}
	whole := encode([][]byte{[]byte(written[0]), []byte(written[1]), []byte(written[2])})
	for broken := range whole {
		dir := t.TempDir()
		s := open(t, dir, 1<<20)
		id := add(t, s, written...)
		path := filepath.Join(dir, bundle{id: id, records: 3}.name())
		data := bytes.Clone(whole)
		data[broken] ^= 0x40
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got := drain(t, s)
		for _, r := range got {
			if !slices.Contains(written, r) {
				t.Errorf("byte %d: read %q, which nobody wrote", broken, r)
			}
		}
		if n := s.Stats().Damaged; n == 0 || n+len(got) != len(written) {
			t.Errorf("byte %d: %d records served, %d counted as damaged, of %d", broken, len(got), n, len(written))
		}
		if _, err := os.Stat(filepath.Join(dir, damagedDir, filepath.Base(path))); err != nil {
			t.Errorf("byte %d: the damaged file is not kept: %v", broken, err)
		}
	}
}

// TestDamagedAreKept damages many bundles: the last of them are kept, within bounds.
func TestDamagedAreKept(t *testing.T) {
	dir := t.TempDir()
	const size, count = 10_000, 30
	s := open(t, dir, 1<<20)
	for i := range count {
		id := add(t, s, string(make([]byte, size)))
		path := filepath.Join(dir, bundle{id: id, records: 1}.name())
		if err := os.WriteFile(path, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if drain(t, s); s.Stats().Damaged != i+1 {
			t.Fatalf("%d are damaged, and %d are counted", i+1, s.Stats().Damaged)
		}
	}
	kept, err := os.ReadDir(filepath.Join(dir, damagedDir))
	if want := int(s.mostDamaged() / size); err != nil || len(kept) != want || want < 3 || want >= count {
		t.Fatalf("%d damaged bundles are kept, want %d: %v", len(kept), want, err)
	}
	if last := (bundle{id: count - 1, records: 1}).name(); kept[len(kept)-1].Name() != last {
		t.Errorf("the last one kept is %s, want %s", kept[len(kept)-1].Name(), last)
	}
}

// TestDamagedMakeRoom has a damaged bundle be in the way that cannot be laid aside,
// as on a full disk: it goes all the same.
func TestDamagedMakeRoom(t *testing.T) {
	dir := t.TempDir()
	one := int64(len(encode([][]byte{make([]byte, 100)})))
	s := open(t, dir, one)
	id := add(t, s, string(make([]byte, 100)))
	path := filepath.Join(dir, bundle{id: id, records: 1}.name())
	if err := errors.Join(os.WriteFile(path, make([]byte, one), 0o600), os.WriteFile(filepath.Join(dir, damagedDir), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, s); len(got) > 0 || s.Stats().Damaged != 1 {
		t.Errorf("served %q, %+v", got, s.Stats())
	}
	add(t, s, string(make([]byte, 100)))
}

// TestUnreadable has a bundle that nobody can read: it is laid aside, and what
// comes after it is served.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	first := add(t, s, "never", "read")
	add(t, s, "next")
	path := filepath.Join(dir, bundle{id: first, records: 2}.name())
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil { // to read a directory is an error
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := s.Read(first); !errors.As(err, &damaged) || damaged.Records != 2 || damaged.Err == nil {
		t.Errorf("read: %v", err)
	}
	if got := drain(t, s); !slices.Equal(got, []string{"next"}) || s.Stats().Damaged != 2 {
		t.Errorf("served %q, %+v", got, s.Stats())
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	if _, err := Open(dir, 1<<20); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, 1<<20)
}

// ownDisk is a small disk.
func ownDisk(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own takes root")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk fills a disk of its own: nothing half-written is left, what was
// there stays, and the next bundle finds room once there is some.
func TestFullDisk(t *testing.T) {
	dir := ownDisk(t)
	s := open(t, dir, 1<<20)
	kept := 0
	for ; ; kept++ {
		if _, err := s.Add([][]byte{make([]byte, 10_000)}); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+unfinished)); kept == 0 || len(left) > 0 {
		t.Errorf("%d bundles kept, half-written are %q", kept, left)
	}
	if got := drain(t, s); len(got) != kept {
		t.Errorf("%d of %d bundles are left", len(got), kept)
	}
	add(t, s, "after")
}

// TestLossesOnAFullDisk has windows be lost because a disk is full, until the process
// ends: the next one knows.
func TestLossesOnAFullDisk(t *testing.T) {
	dir := ownDisk(t)
	s := open(t, dir, 1<<20)
	s.Lose(Losses{Unkept: 1000})
	for size := 1 << 16; size > 0; size /= 2 { // somebody else fills it
		_ = os.WriteFile(filepath.Join(dir, fmt.Sprint("other", size)), make([]byte, size), 0o600)
	}
	if _, err := s.Add([][]byte{make([]byte, 10_000)}); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
	s.Lose(Losses{Unkept: 2})
	s.Lose(Losses{Unkept: -993}) // which is shorter
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, dir, 1<<20).Stats().Losses; got != (Losses{Unkept: 9}) {
		t.Errorf("lost %+v", got)
	}
}

// FuzzDecode reads foreign bytes: whatever is served is framed and summed there.
func FuzzDecode(f *testing.F) {
	f.Add(encode([][]byte{[]byte("a"), nil, []byte("longer")}))
	f.Add([]byte(magic + "\xff\xff\xff\xff0000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range decode(data) {
			if frame := encode([][]byte{r})[len(magic):]; !bytes.Contains(data, frame) {
				t.Errorf("%q was not written", r)
			}
		}
	})
}
