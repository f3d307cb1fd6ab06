package disk

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
	"atys.dev/atys/internal/store/storetest"
)

// faults is a window of page faults, of a kind that keys of version 3 did not name.
func faults() *profile.Window {
	w := storetest.Window(7, "shop", "one", storetest.Epoch)
	w.Types[0] = profile.ValueType{Kind: "page-faults", Unit: "count"}
	w.Types[1] = profile.ValueType{Kind: "bytes", Unit: "bytes"}
	return w
}

// asVersion3 rewrites a store as version 3 would have stored it: no key and no claim names a
// kind, and values are of version 3.
func asVersion3(t *testing.T, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: &listener{log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b := db.NewBatch()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kind := key(nil).text("page-faults")
	rewritten := 0
	for _, space := range []byte{spaceClaims, spaceWindows} {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
		check(err)
		for it.First(); it.Valid(); it.Next() {
			old, ok := bytes.CutSuffix(it.Key(), kind)
			if !ok {
				continue
			}
			value := bytes.TrimSuffix(it.Value(), kind)
			if space == spaceWindows {
				value = slices.Concat([]byte{codec.OldestVersion}, it.Value()[1:])
			}
			check(b.Delete(it.Key(), nil))
			check(b.Set(old, value, nil))
			rewritten++
		}
		check(it.Close())
	}
	if rewritten == 0 {
		t.Fatal("no key names the kind")
	}
	check(b.Set(key{spaceVersion}, []byte{codec.OldestVersion}, nil))
	check(b.Commit(pebble.Sync))
}

// TestUpgrade opens a store of version 3. Its agent sends a window again that it had sent
// before the upgrade: it is there once.
func TestUpgrade(t *testing.T) {
	dir := t.TempDir()
	s := openOn(t, dir, nil)
	put := func() {
		t.Helper()
		if err := s.Put(t.Context(), "t", store.Raw, storetest.Batch(profile.Run{1}, faults())); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		t.Helper()
		err := s.Scan(t.Context(), "t", everything(), func(w *profile.Window, _ profile.Run) error {
			if n++; w.Kind() != "page-faults" {
				t.Errorf("a window of %q", w.Kind())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	again := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openOn(t, dir, nil)
	}
	put()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	asVersion3(t, dir)
	s = openOn(t, dir, nil)
	for range 2 { // at the upgrade, and at the next start
		if n := count(); n != 1 {
			t.Fatalf("%d windows are read of version 3", n)
		}
		put()
		if n := count(); n != 1 {
			t.Fatalf("what came again is there %d times", n)
		}
		again()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refuse(t, dir, codec.Version+1, "use the atys that wrote it")
}

// TestUpgradeKeepsKindsApart puts two kinds of one task into a store that was upgraded after
// they were cut.
func TestUpgradeKeepsKindsApart(t *testing.T) {
	cpu := func() *profile.Window { return storetest.Window(7, "shop", "one", storetest.Epoch) }
	for _, order := range [][]func() *profile.Window{{cpu, faults}, {faults, cpu, faults}, {cpu, faults, cpu, faults}} {
		dir := t.TempDir()
		s := upgraded(t, dir)
		for _, window := range order {
			if err := s.Put(t.Context(), "t", store.Raw, storetest.Batch(profile.Run{1}, window())); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		err := s.Scan(t.Context(), "t", everything(), func(w *profile.Window, _ profile.Run) error {
			got = append(got, w.Kind())
			return nil
		})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, []string{"cpu", "page-faults"}) {
			t.Errorf("%d puts: %v, %v", len(order), got, err)
		}
	}
}

// TestUpgradeKeepsClaims upgrades a store of a merged window. A part of it that comes by
// itself does not count again.
func TestUpgradeKeepsClaims(t *testing.T) {
	one, other := faults(), faults()
	for _, w := range []*profile.Window{one, other} {
		w.Types = w.Types[:1]
		w.Rows = w.Rows.Only(0)
	}
	other.Target = profile.Labels{store.ServiceLabel: "shop", "instance": "two"}
	dir := t.TempDir()
	s := openOn(t, dir, nil)
	put := func(b *store.Batch) {
		t.Helper()
		if err := s.Put(t.Context(), "t", store.Raw, b); err != nil {
			t.Fatal(err)
		}
	}
	put(storetest.Added(profile.Run{1}, one, other))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	asVersion3(t, dir)
	s = openOn(t, dir, nil)
	put(storetest.Batch(profile.Run{1}, one))
	got, err := s.Merge(t.Context(), "t", storetest.Of("page-faults", everything()), store.Grouping{})
	if err != nil || got.Columns[0].Windows != 2 {
		t.Errorf("%v windows, %v", got.Columns, err)
	}
}

// TestWindowWithoutKind stores a window whose kind is empty: it is no damage.
func TestWindowWithoutKind(t *testing.T) {
	s := openOn(t, t.TempDir(), nil)
	w := faults()
	w.Types[0].Kind = ""
	if err := s.Put(t.Context(), "t", store.Raw, storetest.Batch(profile.Run{1}, w)); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := s.Scan(t.Context(), "t", everything(), func(*profile.Window, profile.Run) error { n++; return nil })
	if err != nil || n != 1 {
		t.Errorf("%d windows, %v", n, err)
	}
}

// TestPartOfCPUOfVersion3 reads windows whose base only a comment tells: Types, Merge and
// Scan agree.
func TestPartOfCPUOfVersion3(t *testing.T) {
	w := &store.Window{Head: profile.Head{Types: []profile.ValueType{{Kind: "cpu", Unit: "nanoseconds", Period: 3}}}, Scales: []int64{1},
		Rows: profile.RowsOf(1, profile.Row{N: 2, Values: []int64{5}})}
	part := profile.Head{Types: []profile.ValueType{profile.CPUTime(3)}}
	part.MarkPartOfCPU()
	w.Head.Comments = part.Comments
	w.Head.Types = []profile.ValueType{profile.CPUTime(3)}
	data := codec.EncodeWindow(w, codec.Leaves{Rows: []uint32{0}})
	data[0] = codec.OldestVersion
	var all typeCollector
	if !all.read(data, &store.Query{}) || all.Sorted()[0].Base != profile.BaseNone {
		t.Errorf("types are %v", all.Sorted())
	}
	if got, ok := codec.DecodeWindow(data); !ok || got.Head.Types[0].Base != profile.BaseNone {
		t.Errorf("a scan reads %v", got.Head.Types)
	}
}

// upgraded opens an empty store that was of version 3 until now.
func upgraded(t *testing.T, dir string) *Store {
	t.Helper()
	s := openOn(t, dir, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mark(t, dir, codec.OldestVersion)
	return openOn(t, dir, nil)
}

// mark sets the version of a store.
func mark(t *testing.T, dir string, v byte) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: &listener{log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte{spaceVersion}, []byte{v}, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// refuse marks a store with a version and asserts that it is refused.
func refuse(t *testing.T, dir string, v byte, why string) {
	t.Helper()
	mark(t, dir, v)
	if s, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("version %d: %v", v, err)
		if err == nil {
			_ = s.Close() // the test has failed already
		}
	}
}

// TestDescribesTypes writes and reads windows whose types are not the usual ones: a scan
// and a merge read the same.
func TestDescribesTypes(t *testing.T) {
	usual := &store.Window{Head: profile.Head{Types: []profile.ValueType{profile.CPUTime(3), {Kind: "waits", Unit: "count"}}}, Scales: []int64{1, 1},
		Rows: profile.RowsOf(2, profile.Row{N: 2, Values: []int64{5, 6}})}
	plain := codec.EncodeWindow(usual, codec.Leaves{Rows: []uint32{0}})
	other := *usual
	other.Head.Types = []profile.ValueType{{Kind: "cpu", Unit: "nanoseconds", Period: 3}, {Kind: "waits", Unit: "count", Temporality: profile.Level, Base: profile.BaseWall}}
	other.Head.Farewell, other.Head.Slot = true, time.Second
	other.Head.Exact = profile.Exact{CPU: 1, Wall: 2, RunQueue: 3, Bytes: 4, IncludesInterrupt: true, Source: "schedstat"}
	data := codec.EncodeWindow(&other, codec.Leaves{Rows: []uint32{0}})
	got, ok := codec.DecodeWindow(data)
	if !ok || !slices.Equal(got.Head.Types, other.Head.Types) || !got.Head.Farewell || got.Head.Exact != other.Head.Exact {
		t.Errorf("read as %+v, %v", got.Head, ok)
	}
	for i, ty := range other.Head.Types {
		var c codec.Columns
		if !c.Read(data, ty.Kind, 1, codec.Parts{}) || c.Head.Types[0] != ty || !c.Head.Farewell || c.Head.Exact != other.Head.Exact || c.Value[0] != other.Rows.Values[i] {
			t.Errorf("a merge reads %+v", c.Head)
		}
	}
	if got, ok := codec.DecodeWindow(plain); !ok || !slices.Equal(got.Head.Types, usual.Head.Types) || got.Head.Farewell {
		t.Errorf("the usual types are read as %+v, %v", got.Head, ok)
	}
	old := slices.Concat([]byte{codec.OldestVersion}, plain[1:])
	if got, ok := codec.DecodeWindow(old); !ok || !slices.Equal(got.Head.Types, usual.Head.Types) {
		t.Errorf("version 3 is read as %+v, %v", got.Head, ok)
	}
}
