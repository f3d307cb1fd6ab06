package paging

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A slot is a header and the rows of one chunk; slot 0 is not used.
const (
	SlotWords = 1 << 8
	SlotRows  = SlotWords - 1
	slotShift = 8
)

// MaxSlots is how many slots a cell can name.
const MaxSlots = 1 << 16

// Flags of a cell without a slot; see bpf/include/tables.h.
const (
	cellEvicted = 1 << 16 // its rows were in a slot, and made room for others
	cellAsked   = 1 << 31 // user space knows that its rows are wanted
	cellSlot    = 1<<16 - 1
)

// Tick is a time of CLOCK_MONOTONIC in units of 2^27 ns, some 134 ms.
type Tick uint32

const (
	tickShift = 27
	second    = Tick(time.Second >> tickShift)
)

// ErrFull says that the directory has no room for another table.
var ErrFull = errors.New("the directory of unwinding tables is full")

// Options are the memory that a cache has, which walks read.
type Options struct {
	Rows   []uint64 // whole slots
	Cells  []uint64 // the directory
	Packed int64    // bytes that packed tables may take
	Grace  time.Duration
	Now    func() time.Duration // CLOCK_MONOTONIC
}

// Cache keeps rows in slots. It is safe for concurrent use.
type Cache struct {
	options Options

	mu           sync.Mutex // guards all below, and the tables
	owners       []owner    // by slot
	free         []uint16
	retired      []retiredSlot
	cells        *Extents
	retiredCells []retiredCells
	tables       map[*Table]bool
	surveyed     Tick
	looked       Tick     // for idle tables
	victims      []victim // scratch
	stats        Stats
	closed       bool // the memory is gone
}

// owner is what a slot holds.
type owner struct {
	table  *Table // nil: nothing
	chunk  int
	loaded Tick
}

type retiredSlot struct {
	slot uint16
	at   time.Duration
}

type retiredCells struct {
	run Extent
	at  time.Duration
}

// Stats count what a cache holds and did.
type Stats struct {
	Slots, SlotsMax int
	Tables          int
	Cells, CellsMax uint32
	PackedBytes     int64
	Loads           uint64 // chunks
	Evictions       uint64 // likewise
	EvictionsNeeded uint64 // of these, chunks that were wanted again within 10 s
	TablesGivenUp   uint64 // packed tables that made room for others
	TablesRemoved   uint64 // tables that made room in the directory
}

// New makes an empty cache.
func New(o Options) *Cache {
	slots := min(len(o.Rows)/SlotWords, MaxSlots)
	c := &Cache{options: o, owners: make([]owner, slots), tables: map[*Table]bool{}, cells: NewExtents(0, uint32(len(o.Cells)))}
	for slot := slots - 1; slot > 0; slot-- {
		c.free = append(c.free, uint16(slot))
	}
	c.stats.SlotsMax = slots - 1
	return c
}

func (c *Cache) tick() Tick { return Tick(c.options.Now() >> tickShift) }

// half is the low or high half of a word that walks read or write, too.
func half(word *uint64, high int) *uint32 { return &(*[2]uint32)(unsafe.Pointer(word))[high] }

func (c *Cache) header(slot uint16) *uint64 { return &c.options.Rows[int(slot)<<slotShift] }

// entry is what a cell says of its chunk's slot.
func (c *Cache) entry(t *Table, chunk int) *uint32 {
	return half(&c.options.Cells[int(t.cells.First)+chunk], 1)
}

// Add gives a table its directory. No chunk is loaded yet.
func (c *Cache) Add(p *Packed) (*Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reclaim()
	run, ok := c.cells.Take(uint32(len(p.starts)))
	if !ok || c.closed {
		return nil, ErrFull
	}
	t := &Table{cells: run, starts: p.starts, chunks: make([]chunkState, len(p.starts)), used: c.tick()}
	for i, start := range p.starts {
		c.options.Cells[int(run.First)+i] = uint64(start)
	}
	c.tables[t] = true
	c.keep(t, p)
	return t, nil
}

// Restore gives a table that was given up its rows again; false where they are
// those of another file.
func (c *Cache) Restore(t *Table, p *Packed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tables[t] || len(p.starts) != len(t.starts) {
		return false
	}
	for i := range p.starts {
		if p.starts[i] != t.starts[i] {
			return false
		}
	}
	if t.packed == nil {
		t.used = c.tick() // or it would be idle, and go again
		c.keep(t, p)
	}
	return true
}

// Close has the cache touch its memory no more. Tables cannot be added then, and
// nothing is loaded.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	clear(c.tables)
}

// Packed tells whether a table's rows are there, to be loaded without being built.
func (c *Cache) Packed(t *Table) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.packed != nil
}

// keep keeps a packed table, and gives up those that were not used for longest.
func (c *Cache) keep(t *Table, p *Packed) {
	t.packed = p
	c.stats.PackedBytes += int64(p.Bytes())
	if c.stats.PackedBytes > c.options.Packed {
		c.survey()
	}
	for c.stats.PackedBytes > c.options.Packed {
		var oldest *Table
		for other := range c.tables {
			if other != t && other.packed != nil && (oldest == nil || other.used < oldest.used) {
				oldest = other
			}
		}
		if oldest == nil {
			return // one table alone may take more
		}
		c.giveUp(oldest)
		c.stats.TablesGivenUp++
	}
}

// GiveUpIdle gives up packed tables that no walk has used for the given time. Call it only if
// they are cheap to restore, as from the disk cache.
func (c *Cache) GiveUpIdle(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, limit := c.tick(), Tick(idle>>tickShift)
	if now-c.looked < limit/8 {
		return // a survey reads the header of every slot
	}
	c.looked = now
	c.survey()
	for t := range c.tables {
		if now-t.used > limit {
			c.giveUp(t)
		}
	}
}

func (c *Cache) giveUp(t *Table) {
	if t.packed != nil {
		c.stats.PackedBytes -= int64(t.packed.Bytes())
		t.packed = nil
	}
}

// Remove drops a table. No executable may point at its directory any more.
func (c *Cache) Remove(t *Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tables[t] {
		return
	}
	for chunk := range t.chunks {
		if slot := t.chunks[chunk].slot; slot != 0 {
			c.evict(slot)
		}
	}
	c.giveUp(t)
	delete(c.tables, t)
	c.retiredCells = append(c.retiredCells, retiredCells{t.cells, c.options.Now()})
}

// Coldest is the table that no walk has used for longest, and for ten seconds at
// least: the one to be removed where the directory is full.
func (c *Cache) Coldest() *Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.survey()
	var coldest *Table
	now := c.tick()
	for t := range c.tables {
		if len(t.starts) > 0 && now-t.used > 10*second && (coldest == nil || t.used < coldest.used) {
			coldest = t
		}
	}
	return coldest
}

// Stats tells what is held.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Slots = s.SlotsMax - len(c.free) - len(c.retired)
	s.Tables, s.Cells, s.CellsMax = len(c.tables), c.cells.Used, uint32(len(c.options.Cells))
	return s
}

// reclaim takes back what no walk can be looking at any more.
func (c *Cache) reclaim() {
	now, n := c.options.Now(), 0
	for _, r := range c.retired {
		if now-r.at < c.options.Grace {
			break
		}
		c.free = append(c.free, r.slot)
		n++
	}
	c.retired = c.retired[:copy(c.retired, c.retired[n:])]
	n = 0
	for _, r := range c.retiredCells {
		if now-r.at < c.options.Grace {
			break
		}
		c.cells.Put(r.run)
		n++
	}
	c.retiredCells = c.retiredCells[:copy(c.retiredCells, c.retiredCells[n:])]
}

// evict withdraws a slot's chunk. The slot is free after the grace period.
func (c *Cache) evict(slot uint16) {
	o := &c.owners[slot]
	state := &o.table.chunks[o.chunk]
	if used := Tick(atomic.LoadUint32(half(c.header(slot), 0))); used != 0 {
		state.met = true
		o.table.used = max(o.table.used, used)
	}
	atomic.StoreUint32(c.entry(o.table, o.chunk), cellEvicted)
	state.slot, state.evicted = 0, max(c.tick(), 1)
	o.table.held--
	o.table = nil
	c.retired = append(c.retired, retiredSlot{slot, c.options.Now()})
	c.stats.Evictions++
}

// load puts a chunk into a free slot and publishes it. wanted says that a walk
// needs it, as far as is known.
func (c *Cache) load(t *Table, chunk int, wanted bool) {
	slot := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	now, header := max(c.tick(), 1), c.header(slot)
	generation := (atomic.LoadUint32(half(header, 1)) + 1) & (1<<16 - 1)
	atomic.StoreUint32(half(header, 1), generation) // before any row is written
	used := Tick(0)
	if wanted {
		used = now
	}
	atomic.StoreUint32(half(header, 0), uint32(used))
	at := int(slot) << slotShift
	t.packed.unpack(chunk, c.options.Rows[at+1:at+SlotWords])
	atomic.StoreUint32(c.entry(t, chunk), generation<<16|uint32(slot)) // orders all stores above
	state := &t.chunks[chunk]
	if wanted && state.evicted != 0 && now-state.evicted <= 10*second {
		c.stats.EvictionsNeeded++
	}
	state.slot, state.evicted = slot, 0
	state.met = state.met || wanted
	t.held++
	c.owners[slot] = owner{t, chunk, now}
	c.stats.Loads++
}
