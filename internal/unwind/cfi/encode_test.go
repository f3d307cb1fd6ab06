package cfi

import (
	"bytes"
	"debug/elf"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

func sameTable(t testing.TB, got, want *rows.Table) {
	t.Helper()
	if !slices.Equal(got.Rows, want.Rows) || !slices.Equal(got.Index, want.Index) || got.First != want.First || got.Shift != want.Shift ||
		got.KeepsFramePointers != want.KeepsFramePointers || got.Source != want.Source || !maps.Equal(got.Unsupported, want.Unsupported) {
		t.Errorf("%d rows, %d index entries, %+v; want %d, %d, %+v", len(got.Rows), len(got.Index), got.Unsupported, len(want.Rows), len(want.Index), want.Unsupported)
	}
}

// Tables of real files come back as they were, in place where they are aligned.
func TestEncodedTablesComeBack(t *testing.T) {
	tables := []*rows.Table{{Unsupported: map[string]int{}}, {Unsupported: map[string]int{"": 1, "reason": 2}, Source: "eh_frame", KeepsFramePointers: true}}
	for _, file := range []string{"/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/perl", "/usr/local/go/bin/go"} {
		f, err := elf.Open(file)
		if err != nil {
			continue
		}
		table, err := Build(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	if len(tables) == 2 {
		t.Error("no real file was read")
	}
	for _, want := range tables {
		data := bytes.Join(want.Encode(), nil)
		for shift := range 2 {
			moved := append(make([]byte, shift, shift+len(data)), data...)[shift:]
			got, err := rows.Decode(moved)
			if err != nil {
				t.Fatal(err)
			}
			sameTable(t, got, want)
			if inPlace := len(got.Rows) > 0 && unsafe.Pointer(&got.Rows[0]) == unsafe.Pointer(&moved[len(want.Encode()[0])]); inPlace == (shift == 1) && len(got.Rows) > 0 {
				t.Errorf("moved by %d: in place: %v", shift, inPlace)
			}
		}
	}
}

// FuzzDecode wants, of any bytes: no panic, and no table but one that is whole,
// can be looked up in everywhere, and is encoded as the same bytes.
func FuzzDecode(f *testing.F) {
	var all []rows.Row
	for i := range uint32(300) {
		all = append(all, rows.NewRow(0x1000+i*i%7+i*40, rows.NewRule(rows.SP, uint8(i%3), i)))
	}
	table := &rows.Table{Unsupported: map[string]int{"a": 1, "b": 2}, Source: "eh_frame+plt"}
	table.SetRows(all)
	whole := bytes.Join(table.Encode(), nil)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(bytes.Join((&rows.Table{}).Encode(), nil))
	for at := 0; at < len(whole); at += 97 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		f.Add(damaged)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := rows.Decode(data)
		if err != nil {
			return
		}
		check(t, table)
		for _, off := range []uint32{0, table.First, table.First + 1, 1 << 31, 1<<32 - 1} {
			table.Find(off)
		}
		for _, at := range table.Index {
			if int(at) >= len(table.Rows) {
				t.Fatalf("the index leads to row %d of %d", at, len(table.Rows))
			}
		}
		if again, err := rows.Decode(bytes.Join(table.Encode(), nil)); err != nil {
			t.Fatal(err)
		} else {
			sameTable(t, again, table)
		}
	})
}
