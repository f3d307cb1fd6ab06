package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
	"atys.dev/atys/internal/store/storetest"
)

// tables are the spaces of keys, but those of windows, which have tests of their
// own, and of the version.
var tables = map[string]byte{"limits": spaceDropped, "claims": spaceClaims, "calls": spaceCalls, "leaves": spaceLeaves,
	"names": spaceNames, "places": spacePlaces, "steps": spaceStale, "series": spaceSeries}

// victim is a store whose tables have several records each, and what is in it.
type victim struct {
	dir     string
	windows []*profile.Window
	added   *profile.Window // of a day after, under a claim
}

const (
	otherTenant = "aaa"
	smallBlocks = 512 // so that blocks are of few records
)

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{dir: t.TempDir()}
	s := v.open(t, vfs.Default)
	for n := range 12 {
		service := []string{"shop", "bank"}[n%2]
		v.windows = append(v.windows, storetest.Window(uint64(n), service, fmt.Sprint(n/4), storetest.Epoch.Add(time.Duration(n)*step)))
		v.put(t, s, tenantName, v.windows[n])
		v.put(t, s, otherTenant, v.windows[n])
	}
	part := storetest.Window(100, "shop", "part", storetest.Epoch)
	part.Types = part.Types[:1]
	part.Rows = part.Rows.Only(0)
	v.added = part
	ctx := context.Background()
	if err := s.Put(ctx, tenantName, store.Raw, storetest.Added(profile.Run{1}, part)); err != nil {
		t.Fatal(err)
	}
	for _, level := range levels { // nothing so old is there
		if err := s.Drop(ctx, tenantName, level, storetest.Epoch.Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.db.Compact(ctx, key{0}, key{0xff}, false), s.Close()); err != nil {
		t.Fatal(err)
	}
	return v
}

// copied is another one that is the same.
func (v *victim) copied(t *testing.T) *victim {
	t.Helper()
	c := *v
	c.dir = t.TempDir()
	if err := os.CopyFS(c.dir, os.DirFS(v.dir)); err != nil {
		t.Fatal(err)
	}
	return &c
}

func (v *victim) open(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Options{Dir: v.dir, Reserve: 1, fs: fs, block: smallBlocks})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (v *victim) put(t *testing.T, s *Store, tenant string, windows ...*profile.Window) {
	t.Helper()
	if err := s.Put(context.Background(), tenant, store.Raw, storetest.Batch(profile.Run{1}, windows...)); err != nil {
		t.Fatal(err)
	}
}

// called is a window by which it is found among others.
func called(w *profile.Window) string {
	return w.Target[store.ServiceLabel] + w.Target["instance"] + w.Start.UTC().Format(time.RFC3339Nano)
}

// seen are the windows of a tenant, and how many parts are damaged.
func (v *victim) seen(t *testing.T, s *Store, tenant string) (map[string]*profile.Window, int) {
	t.Helper()
	all := map[string]*profile.Window{}
	err := s.Scan(context.Background(), tenant, everything(), func(w *profile.Window, _ profile.Run) error {
		all[called(w)] = w
		return nil
	})
	damaged := &store.DamagedError{}
	if err != nil && !errors.As(err, &damaged) {
		t.Fatal(err)
	}
	m, err := s.Merge(context.Background(), tenant, storetest.Of("cpu", everything()), store.Grouping{})
	if err != nil {
		t.Fatal(err)
	}
	if (m.Damaged.Count() > 0) != (damaged.Count() > 0) {
		t.Errorf("a merge says that %d parts are damaged, a scan %d", m.Damaged.Count(), damaged.Count())
	}
	told(t, m)
	return all, m.Damaged.Count()
}

// told holds that stacks of an answer are there once, under the hashes that its
// forest has them be.
func told(t *testing.T, m *store.Merged) {
	t.Helper()
	hashes, seen := make([]profile.Hash, len(m.Forest.Calls)), map[profile.Hash]bool{}
	for i, c := range m.Forest.Calls {
		if hashes[i] = c.End.Hash(); c.Caller >= 0 {
			hashes[i] = hashes[c.Caller].Call(m.Forest.Places[c.Place].Location.Hash())
		}
	}
	for _, c := range m.Columns { // one, or none
		for _, sum := range c.Sums {
			h := m.Forest.Calls[sum.Call].Hash
			if h != hashes[sum.Call] || seen[h] {
				t.Fatalf("a stack is told to be %x, not %x, or twice", h, hashes[sum.Call])
			}
			seen[h] = true
		}
	}
}

// stacksOf is what was sampled by stack. What is told to be damaged is one.
func stacksOf(w *profile.Window) map[string]int64 {
	sums := map[string]int64{}
	for _, row := range w.Rows.All() {
		var of strings.Builder
		for _, id := range w.Stacks[row.Stack].Locations {
			fmt.Fprint(&of, w.Locations[id], ";")
		}
		of.WriteString(w.Stacks[row.Stack].End.String())
		name := of.String()
		if strings.Contains(name, lostName) || w.Stacks[row.Stack].End == profile.EndDamaged {
			name = lostName
		}
		sums[name] += row.N
	}
	return sums
}

// honest holds that a window has all samples, each under its own stack or told to
// be damaged.
func honest(t *testing.T, want, got *profile.Window) {
	t.Helper()
	if got.N() != want.N() {
		t.Errorf("%s has %d samples of %d", called(want), got.N(), want.N())
	}
	there := stacksOf(want)
	for stack, n := range stacksOf(got) {
		if stack != lostName && there[stack] != n {
			t.Errorf("%s has %d samples of %s, want %d", called(want), n, stack, there[stack])
		}
	}
}

// judge holds what a damaged store does: whatever of it is read is right, answers
// and a check say that there is more, and what comes now is kept as it is.
func (v *victim) judge(t *testing.T, fs vfs.FS, space byte) {
	t.Helper()
	s := v.open(t, fs)
	if names, err := s.Tenants(context.Background()); err != nil || !slices.Contains(names, tenantName) {
		t.Errorf("tenants are %q, %v", names, err)
	}
	// Before anything else tells what numbers there are.
	fresh := []*profile.Window{storetest.Window(3, "another", "one", storetest.Epoch)}
	v.put(t, s, tenantName, fresh...)
	all, damaged := v.seen(t, s, tenantName)
	if damaged == 0 {
		t.Error("no answer says that it is damaged")
	}
	if len(all) != len(v.windows)+2 && fs == vfs.Default && space != spaceSeries { // in a block there may be more
		t.Errorf("%d windows are there, of %d", len(all), len(v.windows)+2)
	}
	for _, w := range v.windows {
		if got := all[called(w)]; got != nil {
			honest(t, w, got)
		}
	}
	var said []string
	if err := s.Check(context.Background(), func(problem string) { said = append(said, problem) }); err != nil || len(said) == 0 {
		t.Errorf("a check says %q, %v", said, err)
	}
	if _, err := s.Stat(context.Background()); err != nil {
		t.Errorf("count: %v", err)
	}
	if steps, err := s.Stale(context.Background(), tenantName); err != nil || len(steps) < 6 {
		t.Errorf("%d steps are to be added up, %v", len(steps), err)
	}
	for n, w := range v.windows {
		fresh = append(fresh, storetest.Window(uint64(n), w.Target[store.ServiceLabel], w.Target["instance"], w.Start.Add(time.Hour)))
	}
	for i := range uint64(20) {
		fresh = append(fresh, storetest.Window(1000+i, "shop", "new", storetest.Epoch.Add(time.Duration(i)*time.Minute)))
	}
	v.put(t, s, tenantName, fresh[1:12]...)
	v.put(t, s, tenantName, fresh[12:]...)
	v.holds(t, s, fresh)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = v.open(t, fs)
	defer s.Close()
	v.holds(t, s, fresh)
	for _, step := range store.Steps(storetest.Epoch) {
		if err := s.Roll(context.Background(), tenantName, step); err != nil && !errors.As(err, new(*store.DamagedError)) {
			t.Errorf("add up %v: %v", step, err)
		}
	}
}

// holds holds that what came since is there as it came, and what was there before
// right as far as it goes.
func (v *victim) holds(t *testing.T, s *Store, fresh []*profile.Window) {
	t.Helper()
	all, _ := v.seen(t, s, tenantName)
	for _, w := range fresh {
		got := all[called(w)]
		if got == nil {
			t.Errorf("%s was put, and is not there", called(w))
		} else if diff := profiletest.DiffKept(w, got); diff != "" {
			t.Errorf("%s is not what was put:\n%s", called(w), diff)
		}
	}
	for _, w := range v.windows {
		if got := all[called(w)]; got != nil {
			honest(t, w, got)
		}
	}
}

// keysOf are the first and the last key of a tenant's table.
func keysOf(t *testing.T, s *Store, space byte) (ends [2]key) {
	t.Helper()
	prefix := newKey(space, tenantName)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		t.Fatal(err)
	}
	if !it.First() {
		t.Fatal("nothing is there")
	}
	ends[0] = slices.Clone(it.Key())
	it.Last()
	ends[1] = slices.Clone(it.Key())
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return ends
}

// TestDamagedRecords has records of each table be other bytes.
func TestDamagedRecords(t *testing.T) {
	original := newVictim(t)
	for name, space := range tables {
		for end, which := range []string{"first", "last"} {
			t.Run(name+", "+which, func(t *testing.T) {
				t.Parallel()
				v := original.copied(t)
				s := v.open(t, vfs.Default)
				k, garbage := keysOf(t, s, space)[end], []byte{0xff}
				if space == spaceStale || space == spaceClaims { // which are in their keys alone
					k, garbage = append(newKey(space, tenantName), byte(store.Raw), 1), nil
				}
				if err := errors.Join(s.db.Set(k, garbage, pebble.Sync), s.Close()); err != nil {
					t.Fatal(err)
				}
				v.judge(t, vfs.Default, space)
			})
		}
	}
}

// TestMissingRecords takes the first record of tables away that are numbered.
func TestMissingRecords(t *testing.T) {
	original := newVictim(t)
	for _, name := range []string{"calls", "leaves", "places", "series"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, space := original.copied(t), tables[name]
			s := v.open(t, vfs.Default)
			if err := errors.Join(s.db.Delete(keysOf(t, s, space)[0], pebble.Sync), s.Close()); err != nil {
				t.Fatal(err)
			}
			v.judge(t, vfs.Default, space)
		})
	}
}

// TestDamagedBlocks has blocks of the files be other bytes in which each table lies.
func TestDamagedBlocks(t *testing.T) {
	original := newVictim(t)
	for name, space := range tables {
		for end, which := range []string{"first", "last"} {
			t.Run(name+", "+which, func(t *testing.T) {
				t.Parallel()
				v := original.copied(t)
				fs := &blockFS{FS: vfs.Default}
				s := v.open(t, fs)
				k := keysOf(t, s, space)[end]
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				fs.bad = v.blockOf(t, fs, k)
				v.judge(t, fs, space)
				if !fs.hit.Load() {
					t.Error("the block was never read")
				}
				other, damaged := v.seen(t, v.reopened(t, fs), otherTenant) // of which something may be in the same block
				for _, w := range v.windows {
					if got := other[called(w)]; got != nil {
						honest(t, w, got)
					}
				}
				if len(other) < len(v.windows) && damaged == 0 {
					t.Errorf("another tenant has %d windows of %d", len(other), len(v.windows))
				}
			})
		}
	}
}

// reopened is the store until the test ends.
func (v *victim) reopened(t *testing.T, fs vfs.FS) *Store {
	s := v.open(t, fs)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// blockOf finds the block of a key. Those of keys and values lie first in a file.
func (v *victim) blockOf(t *testing.T, fs *blockFS, k key) blockPlace {
	t.Helper()
	db, err := pebble.Open(v.dir, &pebble.Options{FS: fs, ReadOnly: true, FormatMajorVersion: pebble.FormatNewest, Logger: &listener{log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	fs.mu.Lock()
	fs.read = nil
	fs.mu.Unlock()
	value, closer, err := db.Get(k)
	if err != nil {
		t.Fatal(err)
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	first := fs.read[0]
	for _, at := range fs.read {
		if at.offset < first.offset {
			first = at
		}
	}
	t.Logf("%q, of %d bytes, lies at %v", k, len(value), first)
	if err := errors.Join(closer.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return first
}

// blockFS remembers which blocks of tables were read, and has one be damaged.
type blockFS struct {
	vfs.FS
	bad blockPlace
	hit atomic.Bool

	mu   sync.Mutex // guards all below
	read []blockPlace
}

func (f *blockFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, options...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return &blockFile{file, f, filepath.Base(name)}, nil
}

type blockFile struct {
	vfs.File
	of   *blockFS
	name string
}

func (f *blockFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	at := blockPlace{f.name, offset}
	f.of.mu.Lock()
	f.of.read = append(f.of.read, at)
	f.of.mu.Unlock()
	if at == f.of.bad && n > 0 {
		p[0] ^= 0xff
		f.of.hit.Store(true)
	}
	return n, err
}

// TestNotesAreNoCalls counts the places that calls name where a note lies beside them.
func TestNotesAreNoCalls(t *testing.T) {
	s := openOn(t, t.TempDir(), vfs.Default)
	defer s.Close()
	if err := put(s, 0); err != nil {
		t.Fatal(err)
	}
	of := s.tenants[tenantName]
	var note codec.Writer
	note.Number(7)
	note.Number(1_000_000)
	if err := s.db.Set(noteKey(newKey(spaceCalls, tenantName).text("shop")), note, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if named, err := (&restorer{s.db, of}).placesNamed(); err != nil || named != int64(of.places.size()) {
		t.Errorf("%d places are named, of %d: %v", named, of.places.size(), err)
	}
}
