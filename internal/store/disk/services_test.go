package disk_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

// many is a batch of a table of stacks, and of windows of as many services that have
// one of them each.
func many(services, stacks int) *store.Batch {
	forest, leaves := profiletest.Forest(rand.New(rand.NewPCG(1, 2)), stacks, 5)
	b := &store.Batch{Stacks: leaves, Forest: forest}
	for i := range services {
		w := store.Window{Series: profile.Labels{store.ServiceLabel: fmt.Sprint("service-", i)}, Scales: []int64{1}, Run: profile.Run{1},
			Head: profile.Head{Task: "task", Start: storetest.Epoch, Types: []profile.ValueType{profile.CPUTime(1)}},
			Rows: profile.RowsOf(1, profile.Row{Stack: profile.StackID(i), N: 1, Values: []int64{int64(i + 1)}})}
		b.Windows = append(b.Windows, w)
	}
	return b
}

// TestServicesTimesStacks has a batch of many services under one large table take
// memory for the one and for the other, not for each stack of each service: a few
// kilobytes, packed, of services without rows could else take gigabytes.
func TestServicesTimesStacks(t *testing.T) {
	const services, stacks = 1000, 50_000
	s := open(t, t.TempDir())
	defer s.Close()
	b := many(services, stacks)
	for _, explained := range []bool{true, false} {
		if !explained {
			b.Forest = nil
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := s.Put(t.Context(), tenant, store.Raw, b); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > services*stacks*4/2 {
			t.Errorf("explained %v: %d bytes were taken", explained, bytes)
		}
	}
	for _, i := range []int{0, 1, services - 1} {
		m, err := s.Merge(t.Context(), tenant, storetest.Of("cpu", store.Query{Select: spec.Selector{{Label: store.ServiceLabel, Op: spec.Equal, Value: fmt.Sprint("service-", i)}}, From: storetest.Epoch, To: always().To}), store.Grouping{})
		if err != nil {
			t.Fatal(err)
		}
		if c := m.Columns; len(c) != 1 || len(c[0].Sums) != 1 || c[0].Sums[0].Value != int64(i+1) || m.Forest.Calls[c[0].Sums[0].Call].Hash != b.Stacks[i] {
			t.Errorf("service %d: %+v", i, c)
		}
	}
}

// TestThreadsTimesStacks has what is added up by threads take memory for what each
// name has samples of, and not for all stacks of its service.
func TestThreadsTimesStacks(t *testing.T) {
	const threads, stacks = 500, 20_000
	s := open(t, t.TempDir())
	defer s.Close()
	b := many(1, stacks)
	w := &b.Windows[0]
	w.Rows = profile.RowsOf(1)
	for i := range threads {
		w.Threads = append(w.Threads, profile.Thread{TID: i + 1, Name: fmt.Sprintf("worker-%03d", i)})
	}
	for i := range stacks {
		w.Rows.Append(profile.Row{Stack: profile.StackID(i), Thread: profile.ThreadID(i%threads + 1), N: 1, Values: []int64{int64(i)}})
	}
	if err := s.Put(t.Context(), tenant, store.Raw, b); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := s.Merge(t.Context(), tenant, storetest.Of("cpu", always()), store.Grouping{By: []store.Dimension{store.ByThread}})
	runtime.ReadMemStats(&after)
	if err != nil || len(m.Columns) != threads {
		t.Fatalf("%d columns, %v", len(m.Columns), err)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > threads*stacks*8 {
		t.Errorf("%d bytes were taken", bytes)
	}
	for _, c := range m.Columns {
		n := int64(0)
		for _, sum := range c.Sums {
			n += sum.N
		}
		if n != stacks/threads || len(c.Sums) > stacks/threads {
			t.Errorf("%s: %d samples of %d stacks", c.By, n, len(c.Sums))
		}
	}
}

// BenchmarkServices puts what an agent ships of a node of a hundred services, whose
// stacks are known.
func BenchmarkServices(b *testing.B) {
	s, err := disk.Open(disk.Options{Dir: b.TempDir(), Reserve: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	batch := many(100, 8000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range batch.Windows {
		rows := profile.RowsOf(1)
		for _, stack := range r.Perm(8000)[:100] {
			rows.Append(profile.Row{Stack: profile.StackID(stack), N: 1, Values: []int64{1}})
		}
		batch.Windows[i].Rows = rows
	}
	for b.Loop() {
		if err := s.Put(b.Context(), tenant, store.Raw, batch); err != nil {
			b.Fatal(err)
		}
		batch.Forest = nil
	}
}
