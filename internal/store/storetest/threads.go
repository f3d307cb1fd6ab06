package storetest

import (
	"reflect"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testThreads adds windows up by thread: what is of none of their threads is told
// once, as without threads, and columns are of threads that did something.
func testThreads(t *testing.T, b *bench) {
	windows := some(650)
	idle := Window(1, "shop", "one", Epoch.Add(time.Minute))
	idle.Threads = append(idle.Threads, profile.Thread{PID: 7, TID: 99, Name: "idle"})
	windows = append(windows, idle)
	b.put(t, windows...)
	whole := b.merge(t, always(), "cpu", store.Grouping{}).Columns[0]
	m := b.merge(t, always(), "cpu", store.Grouping{By: []store.Dimension{store.ByThread}})
	if m.Whole == nil || m.Whole.Windows != len(windows) {
		t.Fatalf("windows of all threads: %+v, want %d", m.Whole, len(windows))
	}
	h, w := m.Whole.Head, whole.Head
	for _, reason := range []profile.LossReason{profile.LossDropped, profile.LossTruncated} {
		if got, want := h.LossOf(reason), w.LossOf(reason); got != want || got.N == 0 {
			t.Errorf("%s by thread: %+v, want %+v", reason, got, want)
		}
	}
	if h.Exact != w.Exact || h.Idle != w.Idle || h.Watched != w.Watched || h.Cost != w.Cost || !reflect.DeepEqual(h.Target, w.Target) {
		t.Errorf("by thread: %+v, want %+v", h, w)
	}
	for _, c := range m.Columns {
		if len(c.Sums) == 0 && c.Head.Exact.Empty() || len(c.Head.Losses) > 0 {
			t.Errorf("column %q: %d stacks, CPU %v, losses %v", c.By[0], len(c.Sums), c.Head.Exact.CPU, c.Head.Losses)
		}
		if want := showing(windows, c.By[0]); c.Windows != want {
			t.Errorf("column %q: %d windows, want %d", c.By[0], c.Windows, want)
		}
	}
}

// showing counts the windows that tell of a thread's name, "" being of none.
func showing(windows []*profile.Window, name string) (n int) {
	for _, w := range windows {
		told := false
		for _, th := range w.Threads {
			told = told || th.Name == name
		}
		for _, r := range w.Rows.All() {
			told = told || name == "" && r.Thread == 0
		}
		if told {
			n++
		}
	}
	return n
}
