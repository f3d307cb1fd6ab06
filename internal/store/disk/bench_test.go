package disk_test

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

const (
	benchStacks = 20_000
	benchRows   = 800 // of a window
	benchDepth  = 27
)

// instances is how many a benchmark's service has: ATYS_INSTANCES=200 is an hour
// of a large one, 57.6 million rows, and takes minutes to write.
func instances() int {
	if n, err := strconv.Atoi(os.Getenv("ATYS_INSTANCES")); err == nil {
		return n
	}
	return 10
}

// fill puts an hour of windows of 10 s.
func fill(b *testing.B, s store.Store, count int) {
	r := rand.New(rand.NewPCG(1, 2))
	f, leaves := profiletest.Forest(r, benchStacks, benchDepth)
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i := range count {
		zipf := rand.NewZipf(r, 1.05, 3, uint64(len(leaves))-1)
		swap := r.Perm(len(leaves)) // each has favourites of its own, among the same
		for w := 0; w < 360; w += 36 {
			batch := &store.Batch{Stacks: leaves, Forest: f}
			for n := w; n < w+36; n++ {
				batch.Windows = append(batch.Windows, window(r, zipf, swap, i, start.Add(time.Duration(n)*10*time.Second)))
			}
			if err := s.Put(context.Background(), tenant, store.Raw, batch); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// window is one as a busy instance sends it: weights of single samples lie
// between half a period and one and a half, and are rounded as package wire does.
func window(r *rand.Rand, zipf *rand.Zipf, swap []int, instance int, start time.Time) store.Window {
	const period, scale = 52631579, 52631579 / 2
	counts := map[uint32]int64{}
	for len(counts) < benchRows {
		at := int(zipf.Uint64())
		if r.IntN(4) == 0 {
			at = swap[at]
		}
		counts[uint32(at)]++
	}
	w := store.Window{Series: profile.Labels{store.ServiceLabel: "shop", "instance": fmt.Sprintf("web-%d", instance), "node": fmt.Sprintf("node-%d", instance/10)},
		Head: profile.Head{Task: "builtin", Start: start, Duration: 10 * time.Second, Design: profile.DesignRandomised,
			Types: []profile.ValueType{profile.CPUTime(period)}, Exact: profile.Exact{CPU: time.Duration(r.Int64N(4e10)), Source: "schedstat"}},
		Scales: []int64{scale}, Rows: profile.RowsOf(1)}
	carried := 0.0
	for stack, n := range counts {
		value, squares := 0.0, 0.0
		for range n {
			weight := (0.5 + r.Float64()) * period / scale
			value, squares = value+weight, squares+weight*weight
		}
		steps := math.Round(value + carried)
		carried += value - steps
		w.Rows.Append(profile.Row{Stack: profile.StackID(stack), N: n, Values: []int64{int64(steps) * scale}, Squares: []float64{squares * scale * scale}})
	}
	return w
}

// size is what a store takes that was closed. What is in its log yet is written
// out first: of a day it is a hundredth, of an hour it would be a third.
func size(b *testing.B, dir string) (bytes int64) {
	b.Helper()
	if err := openBench(b, dir).Close(); err != nil {
		b.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, infoErr := d.Info()
			if infoErr != nil {
				return infoErr
			}
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

func BenchmarkMerge(b *testing.B) {
	dir := b.TempDir()
	s := openBench(b, dir)
	began := time.Now()
	fill(b, s, instances())
	rows := float64(instances() * 360 * benchRows)
	b.Logf("%.0f rows in %v", rows, time.Since(began).Round(time.Millisecond))
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%.3f bytes a row on disk", float64(size(b, dir))/rows)
	s = openBench(b, dir)
	rollUp(b, s)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%.3f bytes a row on disk with what was added up", float64(size(b, dir))/rows)
	s = openBench(b, dir)
	defer s.Close()
	hour := store.Query{From: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)}
	one := hour
	one.Select = spec.Selector{{Label: "instance", Op: spec.Equal, Value: "web-3"}}
	summed, summedOne := hour, one
	summed.Level, summedOne.Level = store.Service1h, store.Series1h
	instances := hour // of which each is told apart, if they are few
	instances.Level = store.Series1h
	for name, q := range map[string]store.Query{"service": hour, "instance": one, "service added up": summed, "instance added up": summedOne, "instances added up": instances, "service by reason": hour, "service, two kinds": hour} {
		g, parts := store.Grouping{}, storetest.Of("cpu", q)
		if name == "service, two kinds" {
			parts[0].Kinds = []string{"cpu", "off-cpu"}
		}
		if q.Level == store.Series1h {
			g.MaxInstances = 29
		}
		if name == "service by reason" { // rows are regrouped for kinds that have rules alone
			g.By = []store.Dimension{store.ByContext(store.ContextReason)}
		}
		b.Run(name, func(b *testing.B) {
			timed(b, func() {
				m, err := s.Merge(context.Background(), tenant, parts, g)
				if err != nil || len(m.Columns) != 1 {
					b.Fatalf("%v", err)
				}
			})
		})
	}
}

// BenchmarkMonth merges thirty days of a service of 200 instances, from what was
// added up: days, and hours where the thirty begin and end within one.
func BenchmarkMonth(b *testing.B) {
	const days = 31
	s := openBench(b, b.TempDir())
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	f, leaves := profiletest.Forest(r, benchStacks, benchDepth)
	start := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return start.Add(time.Duration(hours) * time.Hour) }
	for day := range days {
		batch := &store.Batch{Stacks: leaves, Forest: f}
		for hour := range 24 {
			batch.Windows = append(batch.Windows, hourOf(r, at(24*day+hour)))
		}
		if err := s.Put(context.Background(), tenant, store.Service1h, batch); err != nil {
			b.Fatal(err)
		}
		if err := s.Roll(context.Background(), tenant, store.Step{Level: store.Service1d, Start: at(24 * day)}); err != nil {
			b.Fatal(err)
		}
	}
	parts := []store.Query{
		{Level: store.Service1h, From: at(12), To: at(24)},
		{Level: store.Service1d, From: at(24), To: at(24 * (days - 1))},
		{Level: store.Service1h, From: at(24 * (days - 1)), To: at(24*(days-1) + 12)},
	}
	timed(b, func() {
		m, err := s.Merge(context.Background(), tenant, storetest.Of("cpu", parts...), store.Grouping{})
		if err != nil || len(m.Columns) != 1 || m.Columns[0].Windows != (days-1)*24*200*360 {
			b.Fatalf("%v", err)
		}
	})
}

// timed also says what the median of calls took, the first of them, which finds
// nothing in memory, and the interval of the median.
func timed(b *testing.B, call func()) {
	b.Helper()
	var took []float64
	for b.Loop() {
		began := time.Now()
		call()
		took = append(took, 1000*time.Since(began).Seconds())
	}
	median, _ := stats.MedianInterval(took)
	b.ReportMetric(took[0], "ms-first")
	b.ReportMetric(median.Value, "ms-median")
	b.ReportMetric(median.Low, "ms-low")
	b.ReportMetric(median.High, "ms-high")
}

// hourOf is an hour of 200 instances, of which each stack is as hot as its number
// is small.
func hourOf(r *rand.Rand, start time.Time) store.Window {
	const period, scale = 52631579, 52631579 / 2
	w := store.Window{Of: 200 * 360, Series: profile.Labels{store.ServiceLabel: "shop"},
		Head: profile.Head{Task: "builtin", Start: start, Duration: time.Hour, Design: profile.DesignRandomised,
			Types: []profile.ValueType{profile.CPUTime(period)}, Exact: profile.Exact{CPU: 100 * time.Hour, Source: "schedstat"}},
		Scales: []int64{scale}, Rows: profile.RowsOf(1)}
	for stack := range benchStacks {
		if r.IntN(20) == 0 {
			continue
		}
		n, value := int64(0), int64(0)
		for range store.Groups {
			mean := 6e7 / 8 / float64(stack+3) / 10
			of := max(0, int64(mean+math.Sqrt(mean)*r.NormFloat64()))
			n, value = n+of, value+2*of
			w.Groups = append(w.Groups, 2*of*scale)
		}
		value *= scale
		squares := profile.Alike(n, value) * (1.08 + 0.01*r.NormFloat64())
		w.Rows.Append(profile.Row{Stack: profile.StackID(stack), N: n, Values: []int64{value}, Squares: []float64{squares}})
	}
	return w
}

// rollUp adds all up, and says how long that takes.
func rollUp(b *testing.B, s store.Store) {
	b.Helper()
	steps, err := s.Stale(context.Background(), tenant)
	if err != nil {
		b.Fatal(err)
	}
	took, count := map[store.Level]time.Duration{}, map[store.Level]int{}
	for _, step := range steps {
		began := time.Now()
		if err := s.Roll(context.Background(), tenant, step); err != nil {
			b.Fatal(err)
		}
		took[step.Level] += time.Since(began)
		count[step.Level]++
	}
	for _, level := range store.RolledUp() {
		b.Logf("%s: %d steps, %v each", level, count[level], (took[level] / time.Duration(max(count[level], 1))).Round(100*time.Microsecond))
	}
}

func openBench(b *testing.B, dir string) store.Store {
	b.Helper()
	s, err := disk.Open(disk.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	return s
}
