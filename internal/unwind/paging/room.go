package paging

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Answer is what became of a demand.
type Answer int

// The answers.
const (
	Loaded   Answer = iota // or there is nothing to load
	Wait                   // for the grace period of slots that were evicted
	Build                  // the rows were given up: build the table, and Restore it
	Returned               // loaded, of a table that was not used for a while: Fill it
)

// How long a chunk is safe from being evicted for another: one that a walk used
// from chunks that walks need; and from chunks that may be needed, one that was
// used, and one that was loaded in case.
const (
	protectUsed  = second
	protectKnown = 20 * second
	protectSpare = 2 * second
	protectFrom  = 5 * 60 * second // from chunks that no walk ever needed
)

// returnsAfter is after how long without a walk a table that is used again gets
// back what it had.
const returnsAfter = 3 * second

// largestPart is which part of all slots Fill gives to one table at most where it
// takes them from others.
const largestPart = 2

// reserve is how many slots are kept free, so that what a walk needs never waits.
func (c *Cache) reserve() int { return max(c.stats.SlotsMax/32, 2) }

// Demand loads the chunk that has a file offset, which a walk of the table's
// executable needed.
func (c *Cache) Demand(t *Table, offset uint32) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.demand(t, offset, true)
}

// Hint loads a chunk that the next walk is likely to need. It takes no room from
// chunks that walks have just used.
func (c *Cache) Hint(t *Table, offset uint32) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.demand(t, offset, false)
}

// Refuse has walks ask again for a chunk for which there was no room.
func (c *Cache) Refuse(t *Table, offset uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if chunk, ok := t.chunkOf(offset); ok && c.tables[t] && t.chunks[chunk].slot == 0 {
		atomic.StoreUint32(c.entry(t, chunk), cellEvicted)
	}
}

func (c *Cache) demand(t *Table, offset uint32, sure bool) Answer {
	chunk, ok := t.chunkOf(offset)
	if !ok || !c.tables[t] || t.chunks[chunk].slot != 0 {
		return Loaded
	}
	now := c.tick()
	returned := sure && (!t.demanded || now-min(c.lastUse(t), now) > returnsAfter)
	t.used, t.demanded = now, t.demanded || sure
	t.chunks[chunk].met = true
	if t.packed == nil {
		return Build
	}
	c.reclaim()
	if want := c.reserve(); len(c.free)+len(c.retired) < want {
		n := 2*want - len(c.free) - len(c.retired)
		if c.evictOldest(n, protectUsed, 0) == 0 && sure {
			c.evictFairly(want)
		}
	}
	if len(c.free) == 0 {
		return Wait
	}
	c.load(t, chunk, true)
	if returned {
		return Returned
	}
	return Loaded
}

// lastUse is when a walk used any chunk of a table.
func (c *Cache) lastUse(t *Table) Tick {
	last := t.used
	for chunk := range t.chunks {
		if slot := t.chunks[chunk].slot; slot != 0 {
			last = max(last, c.used(int(slot)))
		}
	}
	return last
}

// Fill loads what is not loaded of a table in case that walks need it: what they
// used before first. Where asked is set, a walk has asked for the table: then what
// has not been used lately makes room. Wait says that it does so, and that Fill is
// to be called again.
func (c *Cache) Fill(t *Table, asked bool) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tables[t] || t.packed == nil {
		return Loaded
	}
	c.reclaim()
	missing, met := c.missing(t)
	for len(missing) > 0 && len(c.free) > c.reserve() {
		c.load(t, missing[0], false)
		missing = missing[1:]
		met--
	}
	room := c.stats.SlotsMax/largestPart - t.held - len(c.retired)
	n := min(len(missing), room)
	if !asked || n <= 0 {
		return Loaded
	}
	evicted := 0
	if met > 0 {
		evicted = c.evictOldest(min(met, n), protectKnown, protectSpare)
	}
	if evicted < n {
		evicted += c.evictOldest(n-evicted, protectFrom, protectSpare)
	}
	if evicted > 0 {
		return Wait
	}
	return Loaded
}

// missing lists the chunks of a table without slots, those that walks met first,
// and how many these are.
func (c *Cache) missing(t *Table) (chunks []int, met int) {
	for chunk := range t.chunks {
		if s := &t.chunks[chunk]; s.slot == 0 {
			chunks = append(chunks, chunk)
			if s.met {
				met++
			}
		}
	}
	slices.SortStableFunc(chunks, func(a, b int) int {
		return cmp.Compare(order(&t.chunks[a]), order(&t.chunks[b]))
	})
	return chunks, met
}

func order(s *chunkState) int {
	if s.met {
		return 0
	}
	return 1
}

// victim is a slot that may be evicted: those of lower rank go first.
type victim struct {
	slot uint16
	rank uint64
}

// used is when a walk used a slot last; 0: none has.
func (c *Cache) used(slot int) Tick {
	return Tick(atomic.LoadUint32(half(c.header(uint16(slot)), 0)))
}

// evictOldest evicts up to n slots that were not used, or not used since they were
// loaded, for so long, and tells how many. Never used ones go first.
func (c *Cache) evictOldest(n int, known, spare Tick) int {
	now := c.tick()
	c.victims = c.victims[:0]
	for slot := range c.owners {
		o := &c.owners[slot]
		if o.table == nil {
			continue
		}
		if used := c.used(slot); used != 0 {
			o.table.used = max(o.table.used, used)
			if now-min(used, now) >= known {
				c.victims = append(c.victims, victim{uint16(slot), 1<<32 | uint64(used)})
			}
		} else if now-min(o.loaded, now) >= spare {
			c.victims = append(c.victims, victim{uint16(slot), uint64(o.loaded)})
		}
	}
	c.surveyed = now
	slices.SortFunc(c.victims, func(a, b victim) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.slot, b.slot)) })
	n = min(n, len(c.victims))
	for _, v := range c.victims[:n] {
		c.evict(v.slot)
	}
	return n
}

// evictFairly evicts n slots where walks use all of them: those of the tables that
// hold most, the least recently used of each first. No table is starved by one
// that uses more code.
func (c *Cache) evictFairly(n int) {
	held := map[*Table][]victim{}
	for slot := range c.owners {
		if t := c.owners[slot].table; t != nil {
			held[t] = append(held[t], victim{uint16(slot), uint64(c.used(slot))})
		}
	}
	for _, slots := range held { // the oldest last, to be cut off
		slices.SortFunc(slots, func(a, b victim) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.slot, b.slot)) })
	}
	for ; n > 0; n-- {
		var largest *Table
		for t, slots := range held {
			if largest == nil || len(slots) > len(held[largest]) || len(slots) == len(held[largest]) && t.cells.First < largest.cells.First {
				largest = t
			}
		}
		slots := held[largest]
		if len(slots) == 0 {
			return
		}
		c.evict(slots[len(slots)-1].slot)
		held[largest] = slots[:len(slots)-1]
	}
}

// survey finds out when each table was used last.
func (c *Cache) survey() {
	if now := c.tick(); now != c.surveyed {
		c.surveyed = now
		for slot := range c.owners {
			if o := &c.owners[slot]; o.table != nil {
				o.table.used = max(o.table.used, c.used(slot))
			}
		}
	}
}
