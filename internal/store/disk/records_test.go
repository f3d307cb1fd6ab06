package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/storetest"
)

// numberedRecord is a record that its start tells from others.
func numberedRecord(n int) profile.Record {
	return storetest.Record(uint64(n), "shop", fmt.Sprint(n%3), storetest.Epoch.Add(time.Duration(n)*step))
}

func putRecord(s *Store, n int) error {
	return s.PutRecords(context.Background(), tenantName, []profile.Record{numberedRecord(n)})
}

// recordsThere lists which records are stored, each as it was put, and how many parts are
// damaged.
func recordsThere(t *testing.T, s *Store, kind string) (seen map[int]bool, damaged int) {
	t.Helper()
	seen = map[int]bool{}
	q := store.RecordQuery{Kind: kind, From: storetest.Epoch.Add(-time.Hour), To: storetest.Epoch.Add(24 * time.Hour)}
	err := s.ScanRecords(context.Background(), tenantName, q, func(r *profile.Record) error {
		n := int(r.Start.Sub(storetest.Epoch) / step)
		want := numberedRecord(n)
		if diff := storetest.DiffRecords(&want, r); diff != "" {
			t.Errorf("record %d is not what was put: %s", n, diff)
		}
		if seen[n] {
			t.Errorf("record %d is there twice", n)
		}
		seen[n] = true
		return nil
	})
	var damage *store.DamagedError
	if errors.As(err, &damage) {
		return seen, damage.Parts
	}
	if err != nil {
		t.Fatal(err)
	}
	return seen, 0
}

func expectRecords(t *testing.T, s *Store, kept map[int]bool) {
	t.Helper()
	seen, _ := recordsThere(t, s, "")
	for n, acknowledged := range kept {
		if acknowledged && !seen[n] {
			t.Errorf("record %d was acknowledged, and is gone", n)
		}
	}
}

// TestRecordsOnFailingDisk makes syncs of the log fail for a while.
func TestRecordsOnFailingDisk(t *testing.T) {
	var bad atomic.Bool
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if bad.Load() && isLog(o) && isSync(o) {
			return errors.New("injected")
		}
		return nil
	}))
	dir := t.TempDir()
	s := openOn(t, dir, fs)
	kept, failed := map[int]bool{}, 0
	for n := range 30 {
		if bad.Store(n%10 >= 7); !bad.Load() {
			waitFor(t, "a disk that works again to be used", func() bool { return putRecord(s, n) == nil })
			kept[n] = true
			continue
		}
		err := putRecord(s, n)
		if kept[n] = err == nil; err != nil {
			failed++
		}
		if err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatalf("record %d: %v", n, err)
		}
	}
	if failed == 0 {
		t.Fatal("no put failed")
	}
	bad.Store(false)
	expectRecords(t, s, kept)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openOn(t, dir, vfs.Default)
	defer s.Close()
	expectRecords(t, s, kept)
}

// TestRecordsOnFullDisk fills a small disk: puts are refused, what was stored stays, and
// records can be dropped to make room.
func TestRecordsOnFullDisk(t *testing.T) {
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
	s := openAs(t, Options{Dir: filepath.Join(dir, "store"), Reserve: 8 << 20})
	defer s.Close()
	if err := putRecord(s, 1); err != nil {
		t.Fatal(err)
	}
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, int64(at.Bavail)*at.Bsize-4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := putRecord(s, 2); !errors.Is(err, store.ErrFull) {
		t.Errorf("on a full disk: %v", err)
	}
	expectRecords(t, s, map[int]bool{1: true})
	if err := s.DropRecords(t.Context(), tenantName, storetest.Epoch.Add(48*time.Hour)); err != nil {
		t.Errorf("drop days on a full disk: %v", err)
	}
	if seen, _ := recordsThere(t, s, ""); len(seen) != 0 {
		t.Errorf("%v are there that were dropped", seen)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := putRecord(s, 2); err != nil {
		t.Errorf("with room again: %v", err)
	}
	expectRecords(t, s, map[int]bool{2: true})
}

// recordChild tells a test's child where to put records until it is killed.
const recordChild = "ATYS_RECORDS_CHILD"

// TestRecordsKilled kills a process that puts records, again and again: each that was
// acknowledged is there, once.
func TestRecordsKilled(t *testing.T) {
	if dir := os.Getenv(recordChild); dir != "" {
		s := openAs(t, Options{Dir: dir, Reserve: 1})
		for n := 0; ; n++ { // each life puts those of the last one again
			if err := putRecord(s, n); err != nil {
				t.Fatal(err)
			}
			fmt.Println(n)
		}
	}
	dir := t.TempDir()
	acknowledged := map[int]bool{}
	for life := range 4 {
		child := exec.Command(os.Args[0], "-test.run", "^TestRecordsKilled$")
		child.Env = append(os.Environ(), recordChild+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for killed := false; lines.Scan(); {
			var n int
			if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			acknowledged[n] = true
			if n >= 20*(life+1) && !killed {
				killed = true
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // it was killed
	}
	s := openAs(t, Options{Dir: dir, Reserve: 1})
	defer s.Close()
	expectRecords(t, s, acknowledged)
	if len(acknowledged) < 80 {
		t.Errorf("%d records only were acknowledged", len(acknowledged))
	}
}

// TestRecordsBackedUp copies a store: the copy has its records, and counts their room.
func TestRecordsBackedUp(t *testing.T) {
	s := openAs(t, Options{Dir: t.TempDir(), Reserve: 1})
	defer s.Close()
	kept := map[int]bool{}
	for n := range 10 {
		if err := putRecord(s, n); err != nil {
			t.Fatal(err)
		}
		kept[n] = true
	}
	dir, done, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	copied := openAs(t, Options{Dir: dir, ReadOnly: true})
	expectRecords(t, copied, kept)
	stat, err := copied.Stat(t.Context())
	if err != nil || len(stat.Tenants) != 1 || stat.Tenants[0].Records.Count != 10 || stat.Tenants[0].Records.Bytes < 1000 {
		t.Errorf("%+v, %v", stat, err)
	}
	if err := errors.Join(copied.Close(), done()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedBlockOfRecords damages tables in several places: what can be read is given back as it
// was put, what cannot is counted, a check tells of it, and no series is given to others.
func TestDamagedBlockOfRecords(t *testing.T) {
	t.Parallel()
	const count, parts = 600, 7
	var bad atomic.Bool
	flip := &flipped{FS: vfs.Default, bad: &bad, parts: parts}
	options := Options{Dir: t.TempDir(), Reserve: 1, fs: flip, block: 8 << 10}
	s := openAs(t, options)
	var all []profile.Record
	for n := range count {
		all = append(all, numberedRecord(n))
	}
	if err := s.PutRecords(t.Context(), tenantName, all); err != nil {
		t.Fatal(err)
	}
	if seen, damaged := recordsThere(t, s, ""); len(seen) != count || damaged > 0 {
		t.Fatalf("%d records, %d damaged, before anything is", len(seen), damaged)
	}
	if err := errors.Join(s.db.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	bad.Store(true)
	found := 0
	for flip.part = range int64(parts) {
		s, err := Open(options)
		if err != nil {
			continue // it says so
		}
		problems := 0
		if err := s.Check(t.Context(), func(string) { problems++ }); err != nil {
			t.Errorf("part %d: check: %v", flip.part, err)
		}
		seen, damaged := recordsThere(t, s, "")
		if damaged > 0 {
			found++
		}
		if lost := len(seen) < count; lost != (damaged > 0) || lost && problems == 0 || len(seen) < count/2 {
			t.Errorf("part %d: %d records are there, %d parts and %d problems are told", flip.part, len(seen), damaged, problems)
		}
		of, damaged := recordsThere(t, s, "variance")
		for n := range seen {
			if numberedRecord(n).Kind == "variance" && !of[n] {
				t.Errorf("part %d: record %d is found among all kinds only, %d parts are damaged", flip.part, n, damaged)
			}
		}
		if err := s.Tidy(t.Context(), tenantName); err != nil {
			t.Errorf("part %d: tidy: %v", flip.part, err)
		}
		if n := len(s.tenants[tenantName].numbers); n != 3 {
			t.Errorf("part %d: %d series are left", flip.part, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("nothing was damaged")
	}
}

// TestDamagedRecordValue stores what is no record under the key of one.
func TestDamagedRecordValue(t *testing.T) {
	s := openAs(t, Options{Dir: t.TempDir(), Reserve: 1})
	defer s.Close()
	for n := range 6 {
		if err := putRecord(s, n); err != nil {
			t.Fatal(err)
		}
	}
	spoil := numberedRecord(3)
	prefix := recordsKey(tenantName, days(spoil.Start), "shop", 0)
	k := recordKey(tenantName, 0, &spoil)
	if value, err := s.db.value(k); err != nil || value == nil || !bytes.HasPrefix(k, prefix) {
		t.Fatalf("record 3 is not under its key: %v", err)
	}
	for name, spoilt := range map[string][2][]byte{
		"no value":     {k, nil},
		"other format": {k, []byte{9, 0, 0, 0}},
		"short key":    {prefix.text("kind"), encodeRecord(&spoil)},
	} {
		if err := s.db.Set(spoilt[0], spoilt[1], nil); err != nil {
			t.Fatal(err)
		}
		seen, damaged := recordsThere(t, s, "")
		if len(seen) < 5 || damaged == 0 {
			t.Errorf("%s: %d records, %d parts are damaged", name, len(seen), damaged)
		}
		problems := ""
		if err := s.Check(t.Context(), func(p string) { problems += p }); err != nil || !strings.Contains(problems, "records") {
			t.Errorf("%s: a check tells %q, %v", name, problems, err)
		}
		if err := s.db.Delete(spoilt[0], nil); err != nil {
			t.Fatal(err)
		}
		if err := putRecord(s, 3); err != nil {
			t.Fatal(err)
		}
	}
	expectRecords(t, s, map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true})
}

// TestRecordsAfterSeriesAreDamaged loses the end of the table of series: numbers of series
// that have records only are not given to others.
func TestRecordsAfterSeriesAreDamaged(t *testing.T) {
	dir := t.TempDir()
	s := openAs(t, Options{Dir: dir, Reserve: 1})
	for n := range 3 {
		if err := putRecord(s, n); err != nil {
			t.Fatal(err)
		}
	}
	series := newKey(spaceSeries, tenantName)
	if err := errors.Join(s.db.Set(append(key(nil), series...).number(2), []byte{0xff}, nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openAs(t, Options{Dir: dir, Reserve: 1})
	defer s.Close()
	other := storetest.Record(9, "bank", "9", storetest.Epoch)
	if err := s.PutRecords(t.Context(), tenantName, []profile.Record{other}); err != nil {
		t.Fatal(err)
	}
	if n := s.tenants[tenantName].numbers[keptLabels(other.Series)]; n < 3 {
		t.Errorf("a new series is number %d", n)
	}
}

// FuzzDecodeRecord reads values that were not written: an error, or a record that can be
// stored again.
func FuzzDecodeRecord(f *testing.F) {
	for n := range 4 {
		r := numberedRecord(n)
		f.Add(encodeRecord(&r))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r := profile.Record{Kind: "kind", Start: storetest.Epoch}
		if decodeRecord(value, &r) != nil {
			return
		}
		again := profile.Record{Kind: r.Kind, Start: r.Start}
		if err := decodeRecord(encodeRecord(&r), &again); err != nil || storetest.DiffRecords(&r, &again) != "" {
			t.Fatalf("%+v, and encoded again %+v, %v", r, again, err)
		}
	})
}
