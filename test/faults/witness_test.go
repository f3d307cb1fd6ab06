package faults

import (
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/test/testwait"
)

// watch has a witness look at a spool until the test ends.
func watch(t *testing.T, spool string) *Witness {
	w := Watch(spool, t.TempDir())
	t.Cleanup(func() {
		if err := w.End(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestWitness has what lay on a disk for a moment be known once it is gone.
func TestWitness(t *testing.T) {
	dir := t.TempDir()
	waiting, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	w, one := watch(t, dir), &Sender{Instance: "web"}
	for i := range 3 {
		data, err := proto.Marshal(wire.Seal(one.window(i), one.run))
		if err != nil {
			t.Fatal(err)
		}
		id, err := waiting.Add([][]byte{data})
		if err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the witness sees the bundle", func() bool {
			names, _ := filepath.Glob(filepath.Join(w.dir, "*.bundle")) // the pattern is right
			return len(names) > i
		})
		if _, err := waiting.Read(id); err != nil {
			t.Fatal(err)
		}
		if err := waiting.Done(id); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := w.Windows()
	if err != nil || len(seen) != 3 {
		t.Errorf("%d windows were seen, %v", len(seen), err)
	}
}
