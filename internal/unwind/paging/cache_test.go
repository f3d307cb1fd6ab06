package paging

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// room is a cache of so many slots, and a clock that stands until it is moved.
type room struct {
	*Cache
	rows, cells []uint64
	clock       time.Duration
}

const grace = 100 * time.Millisecond

func newRoom(slots, cells int, packed int64) *room {
	r := &room{rows: make([]uint64, slots*SlotWords), cells: make([]uint64, cells), clock: time.Hour}
	r.Cache = New(Options{Rows: r.rows, Cells: r.cells, Packed: packed, Grace: grace, Now: func() time.Duration { return r.clock }})
	return r
}

// table is rows of some file, each with a rule that is its own.
func table(r *rand.Rand, file, rows int) []uint64 {
	all := make([]uint64, rows)
	offset := uint64(0x1000)
	for i := range all {
		all[i] = offset<<32 | uint64(1+file)<<20 | uint64(i)
		offset += 1 + uint64(r.IntN(300))
	}
	return all
}

// ruleAt is the rule of a plain search.
func ruleAt(rows []uint64, offset uint32) (uint32, bool) {
	i, _ := slices.BinarySearch(rows, uint64(offset)<<32|math.MaxUint32)
	if i == 0 {
		return 0, false
	}
	return uint32(rows[i-1]), true
}

// lookup is what find_rule of unwind.h does, step by step: between says what
// happens between the reads of the cell and of the row, and of the generation.
type lookup struct {
	rule    uint32
	missing bool // its chunk is not loaded
	outside bool // before the first row
	stale   bool // what was read may be of another chunk
}

func (r *room) find(t *Table, offset uint32, between func()) (l lookup) {
	first, count := t.First()
	at := -1
	for i := range count {
		if uint32(r.cells[first+i]) <= offset {
			at = int(first + i)
		}
	}
	if at < 0 {
		return lookup{outside: true}
	}
	entry := atomic.LoadUint32(half(&r.cells[at], 1))
	slot := entry & cellSlot
	if slot == 0 {
		return lookup{missing: true}
	}
	header := r.header(uint16(slot))
	atomic.StoreUint32(half(header, 0), uint32(r.tick()))
	between()
	base := slot << slotShift
	for step := uint32(128); step > 0; step /= 2 {
		if uint32(r.rows[base+step]>>32) <= offset {
			base += step
		}
	}
	l.rule = uint32(r.rows[base])
	between()
	l.stale = (atomic.LoadUint32(half(header, 1))^entry>>16)&(1<<16-1) != 0
	return l
}

// TestEveryLookup has tables come and go, chunks be loaded and evicted, and lookups
// interrupted by all of that. One that says that it is not stale is right, always.
func TestEveryLookup(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		r := newRoom(12, 64, 20_000)
		var rows [8][]uint64
		var packed [8]*Packed
		var tables [8]*Table
		for i := range rows {
			rows[i] = table(rng, i, 1+rng.IntN(3000))
			packed[i] = Pack(rows[i])
		}
		var work func(depth int)
		right, stale, missing := 0, 0, 0
		work = func(depth int) {
			i := rng.IntN(len(rows))
			last := uint32(rows[i][len(rows[i])-1] >> 32)
			offset := rng.Uint32N(last + 500)
			r.clock += time.Duration(rng.Int64N(int64(60 * time.Millisecond)))
			switch {
			case tables[i] == nil:
				if added, err := r.Add(packed[i]); err == nil {
					tables[i] = added
				} else if cold := rng.IntN(len(rows)); tables[cold] != nil && depth == 0 {
					r.Remove(tables[cold])
					tables[cold] = nil
				}
			case rng.IntN(100) == 0 && depth == 0:
				r.Remove(tables[i])
				tables[i] = nil
			case rng.IntN(3) == 0:
				if r.Demand(tables[i], offset) == Build && !r.Restore(tables[i], packed[i]) {
					t.Fatal("the same rows are taken for others")
				}
			case rng.IntN(10) == 0:
				r.Fill(tables[i], rng.IntN(2) == 0)
			case depth < 2:
				of := tables[i]
				found := r.find(of, offset, func() {
					for n := rng.IntN(100); depth == 0 && n > 0; n-- {
						work(depth + 1)
					}
				})
				want, ok := ruleAt(rows[i], offset)
				switch {
				case found.stale:
					stale++
				case found.missing:
					missing++
				case found.outside != !ok || ok && found.rule != want:
					t.Fatalf("seed %d: table %d, offset %#x: rule %#x, want %#x (%v)", seed, i, offset, found.rule, want, ok)
				default:
					right++
				}
			}
		}
		for range 1000 {
			work(0)
		}
		if right < 200 || stale == 0 || missing == 0 {
			t.Errorf("seed %d: %d lookups right, %d stale, %d missing: too few of a kind", seed, right, stale, missing)
		}
		r.checkAccounts(t)
	}
}

// checkAccounts counts what is held once more.
func (r *room) checkAccounts(t *testing.T) {
	t.Helper()
	held, packed := 0, int64(0)
	seen := map[uint16]bool{}
	for of := range r.tables {
		own := 0
		for chunk, s := range of.chunks {
			if s.slot == 0 {
				continue
			}
			own++
			if seen[s.slot] || r.owners[s.slot].table != of || r.owners[s.slot].chunk != chunk {
				t.Fatalf("slot %d is not its owner's", s.slot)
			}
			seen[s.slot] = true
		}
		if own != of.held {
			t.Errorf("a table holds %d slots and counts %d", own, of.held)
		}
		held += own
		if of.packed != nil {
			packed += int64(of.packed.Bytes())
		}
	}
	s := r.Stats()
	if s.Slots != held || s.PackedBytes != packed || held+len(r.free)+len(r.retired) != s.SlotsMax {
		t.Errorf("%d slots are held and %d counted, %d free, %d retired of %d; %d packed bytes, %d counted", held, s.Slots, len(r.free), len(r.retired), s.SlotsMax, packed, s.PackedBytes)
	}
}

// add adds a table that must fit.
func (r *room) add(t *testing.T, rows []uint64) *Table {
	t.Helper()
	of, err := r.Add(Pack(rows))
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// use has walks use all chunks of a table that it can load.
func (r *room) use(of *Table, offsets ...uint32) (missed int) {
	for _, offset := range offsets {
		if l := r.find(of, offset, func() {}); l.missing {
			missed++
			for range 3 {
				if r.Demand(of, offset) != Wait {
					break
				}
				r.clock += grace
			}
		}
	}
	return missed
}

// starts are the offsets of a table's chunks.
func starts(of *Table, n int) []uint32 { return of.starts[:n] }

// What was used last stays; what was never used goes before what was.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	r := newRoom(65, 1000, math.MaxInt64)
	old, busy, spare := r.add(t, table(rng, 0, 20*SlotRows)), r.add(t, table(rng, 1, 20*SlotRows)), r.add(t, table(rng, 2, 20*SlotRows))
	r.use(old, starts(old, 20)...)
	r.clock += 3 * time.Second
	r.use(busy, starts(busy, 20)...)
	r.Fill(spare, false)
	r.clock += 3 * time.Second
	next := r.add(t, table(rng, 3, 30*SlotRows))
	r.use(next, starts(next, 30)...)
	if spare.held > 10 || old.held < 10 || busy.held != 20 || next.held != 30 {
		t.Errorf("held: spare %d, old %d, busy %d, next %d", spare.held, old.held, busy.held, next.held)
	}
	r.use(busy, starts(busy, 20)...)
	r.clock += 3 * time.Second
	last := r.add(t, table(rng, 4, 25*SlotRows))
	r.use(last, starts(last, 25)...)
	if busy.held < 10 || old.held > 0 || last.held != 25 {
		t.Errorf("held: old %d, busy %d, next %d, last %d", old.held, busy.held, next.held, last.held)
	}
	r.checkAccounts(t)
}

// A table that is used again gets back what it had.
func TestReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := newRoom(65, 1000, math.MaxInt64)
	a, b := r.add(t, table(rng, 0, 60*SlotRows)), r.add(t, table(rng, 1, 60*SlotRows))
	used := starts(a, 24)
	r.use(a, used...)
	r.clock += 30 * time.Second
	r.use(b, starts(b, 60)...)
	if a.held > 10 {
		t.Fatalf("%d of what was not used for half a minute is still there", a.held)
	}
	r.clock += 30 * time.Second
	if got := r.Demand(a, used[0]); got != Returned {
		t.Fatalf("the first demand after a minute is answered by %d, want %d", got, Returned)
	}
	for range 5 {
		if r.Fill(a, true) != Wait {
			break
		}
		r.clock += grace
	}
	if missed := r.use(a, used...); missed != 0 {
		t.Errorf("%d of %d chunks are still missing", missed, len(used))
	}
	if s := r.Stats(); s.EvictionsNeeded != 0 {
		t.Errorf("%d evictions count as needed again within 10 s", s.EvictionsNeeded)
	}
}

// Where walks use more than there is room for, tables that use little keep it, and
// those that use much have equal parts.
func TestThrashingIsFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	r := newRoom(129, 4000, math.MaxInt64)
	small := r.add(t, table(rng, 0, 10*SlotRows))
	var large [4]*Table
	for i := range large {
		large[i] = r.add(t, table(rng, 1+i, 100*SlotRows))
	}
	missed, walks := 0, 0
	for step := range 4000 {
		r.clock += 5 * time.Millisecond
		r.use(large[step%4], large[step%4].starts[rng.IntN(100)])
		if step%2 == 0 {
			n := r.use(small, small.starts[rng.IntN(10)])
			if step > 500 {
				missed, walks = missed+n, walks+1
			}
		}
	}
	if float64(missed) > 0.1*float64(walks) {
		t.Errorf("the small table missed %d of %d", missed, walks)
	}
	for i, of := range large {
		if of.held < 128/4/2 {
			t.Errorf("table %d holds %d of %d slots", i, of.held, 128)
		}
	}
	if s := r.Stats(); s.EvictionsNeeded == 0 {
		t.Error("thrashing is not counted")
	}
	r.checkAccounts(t)
}

// The directory has a bound too: a table that was not used lately makes room.
func TestDirectoryFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	r := newRoom(65, 40, math.MaxInt64)
	a, b := r.add(t, table(rng, 0, 20*SlotRows)), r.add(t, table(rng, 1, 20*SlotRows))
	third := table(rng, 2, 20*SlotRows)
	if _, err := r.Add(Pack(third)); err != ErrFull {
		t.Fatalf("a third table: %v", err)
	}
	if r.Coldest() != nil {
		t.Error("a table that was just added is to go")
	}
	r.clock += 20 * time.Second
	r.use(b, starts(b, 1)...)
	if cold := r.Coldest(); cold != a {
		t.Fatalf("the coldest is %p, want %p", cold, a)
	}
	r.Remove(a)
	if _, err := r.Add(Pack(third)); err != ErrFull {
		t.Error("cells are used again that walks may still look at")
	}
	r.clock += grace
	r.add(t, third)
}

// Packed tables have a bound; one that was given up is built again, and rows of
// another file are not taken for its.
func TestPackedBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	one := table(rng, 0, 5000)
	size := int64(Pack(one).Bytes())
	r := newRoom(65, 1000, size*3/2)
	a := r.add(t, one)
	r.clock += time.Second
	b := r.add(t, table(rng, 1, 5000))
	if r.Packed(a) || !r.Packed(b) || r.Stats().PackedBytes > size*3/2 {
		t.Fatalf("packed: %v and %v, %d bytes", r.Packed(a), r.Packed(b), r.Stats().PackedBytes)
	}
	if got := r.Demand(a, a.starts[3]); got != Build {
		t.Errorf("demand of a table that was given up: %d", got)
	}
	if r.Restore(a, Pack(table(rng, 0, 5000))) {
		t.Error("rows of another file are taken")
	}
	if !r.Restore(a, Pack(one)) || r.Demand(a, a.starts[3]) == Build {
		t.Error("rows that were built again are not taken")
	}
}

// TestGiveUpIdle gives up the packed table that no walk uses. Its rows stay in their slots.
func TestGiveUpIdle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	idle, used := table(rng, 0, 5000), table(rng, 1, 5000)
	r := newRoom(65, 1000, math.MaxInt64)
	a, b := r.add(t, idle), r.add(t, used)
	r.Fill(a, true)
	r.Fill(b, true)
	for range 3 {
		r.clock += 30 * time.Second
		r.find(b, uint32(used[10]>>32), func() {})
		r.GiveUpIdle(time.Minute)
	}
	if r.Packed(a) || !r.Packed(b) {
		t.Errorf("packed: %v and %v", r.Packed(a), r.Packed(b))
	}
	if l := r.find(a, uint32(idle[10]>>32), func() {}); l.missing || l.stale {
		t.Errorf("%+v", l)
	}
	if !r.Restore(a, Pack(idle)) || !r.Packed(a) {
		t.Error("it does not come back")
	}
}

// Rows come out as they went in.
func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for _, n := range []int{0, 1, 254, 255, 256, 10_000} {
		rows := table(rng, 5, n)
		p := Pack(rows)
		var got []uint64
		slot := make([]uint64, SlotRows)
		for chunk := range p.starts {
			p.unpack(chunk, slot)
			got = append(got, slot...)
		}
		for len(got) > n && got[len(got)-1] == afterCode {
			got = got[:len(got)-1]
		}
		if !slices.Equal(got, rows) {
			t.Errorf("%d rows come out as %d others", n, len(got))
		}
	}
}

func BenchmarkDemand(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 7))
	r := newRoom(8193, 100_000, math.MaxInt64)
	of, _ := r.Add(Pack(table(rng, 0, 20_000*SlotRows)))
	for i := range b.N {
		r.clock += time.Millisecond
		r.Demand(of, of.starts[i%20_000])
	}
}
