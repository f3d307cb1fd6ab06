package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// RunRecords runs the suite of store.Records over an engine, whose stores have to implement it.
func RunRecords(t *testing.T, e Engine) {
	for name, test := range map[string]func(*testing.T, *recordBench){
		"gives back what was put":      testRecordsGivenBack,
		"stores each once":             testRecordsOnce,
		"selects":                      testRecordsSelect,
		"orders by time":               testRecordsOrder,
		"ends a scan":                  testRecordsEndScan,
		"keeps tenants apart":          testRecordsTenants,
		"rejects what is too large":    testRecordsRejected,
		"drops days":                   testRecordsDrop,
		"series have a limit":          testRecordsSeriesQuota,
		"gives series back":            testRecordsTidy,
		"bytes have a limit":           testRecordsBytesQuota,
		"lists tenants of records":     testRecordsListTenants,
		"many at once":                 testRecordsMany,
		"tidies while records are put": testRecordsTidyBusy,
		"closed":                       testRecordsClosed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.Open(t, quotas)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, &recordBench{bench{Store: s, settle: e.Settle}, s.(store.Records)})
		})
	}
}

// recordBench is a store of windows and records.
type recordBench struct {
	bench
	store.Records
}

// Record returns a record that depends on a seed, of a service and an instance.
func Record(seed uint64, service, instance string, start time.Time) profile.Record {
	r := rand.New(rand.NewPCG(seed, 4))
	kinds := []string{"rate-decision", "budget-decision", "variance"}
	record := profile.Record{Series: profile.Labels{store.ServiceLabel: service, "instance": instance}, Kind: kinds[seed%3], Start: start,
		Duration: time.Duration(r.Int64N(int64(time.Hour))), Sequence: r.Uint64(), Encoding: []string{"", profile.EncodingJSON, "protobuf"}[r.IntN(3)], Version: r.Uint32(),
		Payload: make([]byte, r.IntN(2000))}
	for i := range record.Run {
		record.Run[i] = byte(r.Uint32())
	}
	for i := range record.Payload {
		record.Payload[i] = byte(r.Uint32())
	}
	return record
}

// DiffRecords describes how two records differ; "": they do not.
func DiffRecords(want, got *profile.Record) string {
	if maps.Equal(want.Series, got.Series) && want.Kind == got.Kind && want.Start.Equal(got.Start) && want.Duration == got.Duration && want.Run == got.Run &&
		want.Sequence == got.Sequence && want.Encoding == got.Encoding && want.Version == got.Version && bytes.Equal(want.Payload, got.Payload) {
		return ""
	}
	return fmt.Sprintf("got %+v, want %+v", got, want)
}

// someRecords are records of two services on two instances, over midnight.
func someRecords(first uint64) (all []profile.Record) {
	for i := range uint64(24) {
		service, instance := []string{"shop", "cart"}[i%2], []string{"one", "two"}[i/2%2]
		all = append(all, Record(first+i, service, instance, Epoch.Add(time.Duration(i/4)*5*time.Minute)))
	}
	return all
}

func (b *recordBench) putRecords(t *testing.T, all ...profile.Record) {
	t.Helper()
	if err := b.PutRecords(context.Background(), tenant, all); err != nil {
		t.Fatal(err)
	}
}

func allRecords() store.RecordQuery {
	return store.RecordQuery{From: Epoch.Add(-48 * time.Hour), To: Epoch.Add(480 * time.Hour)}
}

func (b *recordBench) scanRecords(t *testing.T, tenant string, q store.RecordQuery) (all []*profile.Record) {
	t.Helper()
	if b.settle != nil {
		b.settle(b.Store)
	}
	err := b.ScanRecords(context.Background(), tenant, q, func(r *profile.Record) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sameRecords compares records with those that are wanted, in any order.
func sameRecords(t *testing.T, got []*profile.Record, want ...profile.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	left := slices.Clone(want)
	for _, g := range got {
		i := slices.IndexFunc(left, func(w profile.Record) bool { return DiffRecords(&w, g) == "" })
		if i < 0 {
			t.Fatalf("nobody put %+v", g)
		}
		left = slices.Delete(left, i, i+1)
	}
}

func testRecordsGivenBack(t *testing.T, b *recordBench) {
	all := someRecords(100)
	all[3].Payload = make([]byte, profile.MaxPayload)
	all[4].Series, all[5].Series = profile.Labels{}, profile.Labels{"node": "n1"}
	all[6].Kind = strings.Repeat("k", 256)
	b.put(t, some(100)...)
	b.putRecords(t, all[:10]...)
	b.putRecords(t)
	b.putRecords(t, all[10:]...)
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), all...)
	same(t, b.scan(t, tenant, always()), some(100)...)
}

// testRecordsOnce puts records again: together, in another order, and changed.
func testRecordsOnce(t *testing.T, b *recordBench) {
	all := someRecords(200)
	b.putRecords(t, all...)
	slices.Reverse(all)
	b.putRecords(t, append(all[3:7:7], all...)...)
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), all...)
	changed := all[0]
	changed.Duration, changed.Payload = changed.Duration+1, []byte("other")
	b.putRecords(t, changed)
	for n, change := range []func(r *profile.Record){
		func(r *profile.Record) { r.Series = profile.Labels{store.ServiceLabel: "bank"} },
		func(r *profile.Record) { r.Kind += "s" },
		func(r *profile.Record) { r.Start = r.Start.Add(1) },
		func(r *profile.Record) { r.Run[0]++ },
		func(r *profile.Record) { r.Sequence++ },
	} {
		other := changed
		change(&other)
		b.putRecords(t, other)
		all = append(all, other)
		sameRecords(t, b.scanRecords(t, tenant, allRecords()), append([]profile.Record{changed}, all[1:]...)...)
		if len(all) != 25+n {
			t.Fatal("a record is missing from the test")
		}
	}
}

func testRecordsSelect(t *testing.T, b *recordBench) {
	all := someRecords(300)
	b.putRecords(t, all...)
	for name, test := range map[string]struct {
		selector string
		change   func(*store.RecordQuery)
		keeps    func(*profile.Record) bool
	}{
		"kind":     {"", func(q *store.RecordQuery) { q.Kind = "variance" }, func(r *profile.Record) bool { return r.Kind == "variance" }},
		"no kind":  {"", func(q *store.RecordQuery) { q.Kind = "varianc" }, func(*profile.Record) bool { return false }},
		"selector": {`{instance="two"}`, func(*store.RecordQuery) {}, func(r *profile.Record) bool { return r.Series["instance"] == "two" }},
		"all three": {`{service="shop"}`, func(q *store.RecordQuery) { q.Kind, q.To = "variance", Epoch.Add(11*time.Minute) }, func(r *profile.Record) bool {
			return r.Kind == "variance" && r.Series["service"] == "shop" && r.Start.Before(Epoch.Add(11*time.Minute))
		}},
		"from": {"", func(q *store.RecordQuery) { q.From = Epoch.Add(10 * time.Minute) }, func(r *profile.Record) bool { return !r.Start.Before(Epoch.Add(10 * time.Minute)) }},
		"to":   {"", func(q *store.RecordQuery) { q.To = Epoch.Add(10 * time.Minute) }, func(r *profile.Record) bool { return r.Start.Before(Epoch.Add(10 * time.Minute)) }},
		"a moment": {"", func(q *store.RecordQuery) { q.From, q.To = Epoch, Epoch.Add(1) },
			func(r *profile.Record) bool { return r.Start.Equal(Epoch) }},
		"no time":  {"", func(q *store.RecordQuery) { q.To = q.From }, func(*profile.Record) bool { return false }},
		"all time": {"", func(q *store.RecordQuery) { q.From, q.To = time.Time{}, time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) }, func(*profile.Record) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			q := allRecords()
			var err error
			if q.Select, err = spec.ParseSelector(test.selector); err != nil {
				t.Fatal(err)
			}
			test.change(&q)
			var want []profile.Record
			for _, r := range all {
				if test.keeps(&r) {
					want = append(want, r)
				}
			}
			sameRecords(t, b.scanRecords(t, tenant, q), want...)
		})
	}
}

func testRecordsOrder(t *testing.T, b *recordBench) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(60) {
		b.putRecords(t, Record(i, "shop", fmt.Sprint(i%3), Epoch.Add(time.Duration(r.Int64N(int64(72*time.Hour))))))
	}
	type of struct{ series, kind string }
	last, series := map[of]time.Time{}, ""
	got := b.scanRecords(t, tenant, allRecords())
	for _, one := range got {
		if s := one.Series.String(); s < series {
			t.Errorf("%s after %s", s, series)
		} else {
			series = s
		}
		k := of{series, one.Kind}
		if one.Start.Before(last[k]) {
			t.Errorf("%v: %v after %v", k, one.Start, last[k])
		}
		last[k] = one.Start
	}
	if len(got) != 60 {
		t.Errorf("%d records", len(got))
	}
}

func testRecordsEndScan(t *testing.T, b *recordBench) {
	b.putRecords(t, someRecords(350)...)
	b.scanRecords(t, tenant, allRecords()) // so that all of it is seen
	enough := errors.New("so many are enough")
	for wanted := range 5 {
		given := 0
		err := b.ScanRecords(context.Background(), tenant, allRecords(), func(*profile.Record) error {
			if given++; given > wanted {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || errors.As(err, new(*store.DamagedError)) || given != wanted+1 {
			t.Errorf("%d records after %d were enough, %v", given, wanted+1, err)
		}
	}
}

func testRecordsTenants(t *testing.T, b *recordBench) {
	mine, theirs := Record(1, "shop", "one", Epoch), Record(2, "shop", "one", Epoch)
	b.putRecords(t, mine)
	if err := b.PutRecords(context.Background(), "other", []profile.Record{theirs}); err != nil {
		t.Fatal(err)
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), mine)
	sameRecords(t, b.scanRecords(t, "other", allRecords()), theirs)
	sameRecords(t, b.scanRecords(t, "nobody", allRecords()))
}

func testRecordsRejected(t *testing.T, b *recordBench) {
	for name, change := range map[string]func(r *profile.Record){
		"payload":  func(r *profile.Record) { r.Payload = make([]byte, profile.MaxPayload+1) },
		"kind":     func(r *profile.Record) { r.Kind = "" },
		"encoding": func(r *profile.Record) { r.Encoding = strings.Repeat("e", 257) },
		"start":    func(r *profile.Record) { r.Start = time.Unix(-1, 0) },
		"duration": func(r *profile.Record) { r.Duration = -1 },
	} {
		good, bad := Record(1, "shop", "one", Epoch), Record(2, "shop", "one", Epoch)
		change(&bad)
		if err := b.PutRecords(context.Background(), tenant, []profile.Record{good, bad}); err == nil {
			t.Errorf("%s: stored", name)
		}
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()))
}

func testRecordsDrop(t *testing.T, b *recordBench) {
	all := someRecords(400)
	b.putRecords(t, all...)
	b.put(t, some(400)...)
	midnight := Epoch.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if err := b.DropRecords(context.Background(), tenant, midnight.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(all, func(r profile.Record) bool { return r.Start.Before(midnight) })
	if len(left) == 0 || len(left) == 24 {
		t.Fatalf("the test's records do not lie around midnight: %d", len(left))
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), left...)
	same(t, b.scan(t, tenant, always()), some(400)...)
	if dropped, err := b.Dropped(context.Background(), tenant); err != nil || len(dropped) != 0 {
		t.Errorf("windows are said to be dropped: %v, %v", dropped, err)
	}
	if err := b.Drop(context.Background(), tenant, store.Raw, midnight.Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), left...)
	for _, before := range []time.Time{time.Unix(-1, 0), time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if err := b.DropRecords(context.Background(), tenant, before); err != nil {
			t.Fatal(err)
		}
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()))
}

// testRecordsSeriesQuota counts series of windows and of records together.
func testRecordsSeriesQuota(t *testing.T, b *recordBench) {
	const tenant = "three series"
	ctx := context.Background()
	if err := b.Put(ctx, tenant, store.Raw, Batch(profile.Run{1}, Window(1, "shop", "0", Epoch))); err != nil {
		t.Fatal(err)
	}
	var kept []profile.Record
	for i := range uint64(3) {
		kept = append(kept, Record(i, "shop", fmt.Sprint(i), Epoch))
	}
	if err := b.PutRecords(ctx, tenant, kept); err != nil {
		t.Fatal(err)
	}
	more := Record(4, "shop", "more", Epoch)
	there := Record(5, "shop", "1", Epoch)
	err := b.PutRecords(ctx, tenant, []profile.Record{more, there, more})
	var quota *store.QuotaError
	if !errors.As(err, &quota) || quota.Limit != 3 || quota.Later || len(quota.Refused) != 2 {
		t.Errorf("a fourth series: %v", err)
	} else if _, refused := quota.Refused[1]; refused {
		t.Errorf("one that is there is refused: %v", quota.Refused)
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), kept...)
	if err := b.PutRecords(ctx, tenant, []profile.Record{there}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := b.Put(ctx, tenant, store.Raw, Batch(profile.Run{1}, Window(1, "shop", "more", Epoch))); !errors.As(err, &quota) {
		t.Errorf("a window of a fourth series: %v", err)
	}
}

// testRecordsTidy removes series once they have neither windows nor records.
func testRecordsTidy(t *testing.T, b *recordBench) {
	const tenant = "three series"
	ctx, midnight := context.Background(), Epoch.Truncate(24*time.Hour).Add(24*time.Hour)
	put := func(instance string, start time.Time) error {
		err := b.PutRecords(ctx, tenant, []profile.Record{Record(7, "shop", instance, start)})
		if b.settle != nil {
			b.settle(b.Store)
		}
		return err
	}
	fits := func(what, instance string, want bool) {
		t.Helper()
		for range 2 { // a number is given to another series only once the tenant is tidied again
			if err := b.Tidy(ctx, tenant); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(instance, midnight); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range 3 {
		if err := put(fmt.Sprint(i), Epoch); err != nil {
			t.Fatal(err)
		}
	}
	fits("all have records", "new", false)
	if err := put("2", midnight); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, tenant, store.Raw, Batch(profile.Run{1}, Window(1, "shop", "1", Epoch))); err != nil {
		t.Fatal(err)
	}
	if err := b.DropRecords(ctx, tenant, midnight); err != nil {
		t.Fatal(err)
	}
	fits("one has nothing", "new", true)
	fits("all have something again", "newest", false)
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), Record(7, "shop", "2", midnight), Record(7, "shop", "new", midnight))
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		if err := b.Drop(ctx, tenant, level, midnight); err != nil {
			t.Fatal(err)
		}
	}
	fits("the one with a window has nothing", "newest", true)
}

// testRecordsBytesQuota fills a quota with records, and makes room again by dropping the
// oldest day, as a server does.
func testRecordsBytesQuota(t *testing.T, b *recordBench) {
	const tenant = "small"
	ctx, full := context.Background(), 0
	var kept []profile.Record
	for i := range uint64(400) {
		today := Epoch.Add(time.Duration(i/40) * 24 * time.Hour)
		r := Record(i, "shop", fmt.Sprint(i%4), today.Add(time.Duration(i%40)*time.Second))
		before, err := b.Usage(ctx, tenant)
		if err != nil {
			t.Fatal(err)
		}
		err = b.PutRecords(ctx, tenant, []profile.Record{r})
		var quota *store.QuotaError
		switch {
		case err == nil && quotas(tenant).Full(store.Raw, before.Bytes()):
			t.Fatalf("had %d bytes, and more was stored", before.Bytes())
		case err == nil:
			kept = append(kept, r)
			continue
		case !errors.As(err, &quota) || !quota.Later || quota.What != "bytes":
			t.Fatal(err)
		case before.Bytes() < quotas(tenant).Bytes*9/10:
			t.Fatalf("had %d bytes, and no more was stored", before.Bytes())
		}
		full++
		level, until, ok := before.Oldest(today)
		if !ok {
			continue // all of it is today's
		}
		if lasting := before.Lasting(today); level != store.Raw || lasting >= before.Bytes() {
			t.Fatalf("to be dropped: %v before %v, and %d bytes stay of %d", level, until, lasting, before.Bytes())
		}
		if err := errors.Join(b.Drop(ctx, tenant, level, until), b.DropRecords(ctx, tenant, until)); err != nil {
			t.Fatal(err)
		}
		after, err := b.Usage(ctx, tenant)
		if err != nil || after.Bytes() >= before.Bytes() {
			t.Fatalf("%d bytes, and after a day was dropped %d, %v", before.Bytes(), after.Bytes(), err)
		}
		kept = slices.DeleteFunc(kept, func(r profile.Record) bool { return r.Start.Before(until) })
	}
	if full == 0 || len(kept) == 0 {
		t.Errorf("%d times full, %d records are left", full, len(kept))
	}
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), kept...)
}

func testRecordsListTenants(t *testing.T, b *recordBench) {
	b.putRecords(t, Record(1, "shop", "one", Epoch))
	if names, err := b.Tenants(context.Background()); err != nil || !slices.Equal(names, []string{tenant}) {
		t.Errorf("tenants %q, %v", names, err)
	}
}

func testRecordsMany(t *testing.T, b *recordBench) {
	var all []profile.Record
	var writers sync.WaitGroup
	for w := range uint64(8) {
		var own []profile.Record
		for i := range uint64(10) {
			own = append(own, Record(800+10*w+i, "shop", fmt.Sprint(w), Epoch.Add(time.Duration(i)*time.Second)))
		}
		all = append(all, own...)
		writers.Go(func() {
			for i := range own {
				if err := b.PutRecords(context.Background(), tenant, own[i:i+1]); err != nil {
					t.Error(err)
				}
				if err := b.ScanRecords(context.Background(), tenant, allRecords(), func(*profile.Record) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	sameRecords(t, b.scanRecords(t, tenant, allRecords()), all...)
}

// testRecordsTidyBusy drops days and tidies while records are put for series that live for
// one day: what was acknowledged and not dropped is there under its own labels.
func testRecordsTidyBusy(t *testing.T, b *recordBench) {
	ctx, today := context.Background(), Epoch.Truncate(24*time.Hour)
	for day := range 4 {
		var want []profile.Record
		for i := range 48 {
			seed := uint64(100*day + i)
			want = append(want, Record(seed, fmt.Sprint("service-", day, i%4), "one", today.Add(time.Duration(day)*24*time.Hour+time.Duration(i)*time.Minute)))
		}
		var all sync.WaitGroup
		for writer := range 4 {
			all.Go(func() {
				for i := writer; i < len(want); i += 4 {
					if err := b.PutRecords(ctx, tenant, want[i:i+1]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			for range 5 {
				if err := errors.Join(b.DropRecords(ctx, tenant, today.Add(time.Duration(day)*24*time.Hour)), b.Tidy(ctx, tenant)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Wait()
		sameRecords(t, b.scanRecords(t, tenant, allRecords()), want...)
	}
}

func testRecordsClosed(t *testing.T, b *recordBench) {
	r := Record(1, "shop", "one", Epoch)
	b.putRecords(t, r)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.PutRecords(context.Background(), tenant, []profile.Record{r}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("put after it was closed: %v", err)
	}
	if err := b.ScanRecords(context.Background(), tenant, allRecords(), func(*profile.Record) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("read after it was closed: %v", err)
	}
}
