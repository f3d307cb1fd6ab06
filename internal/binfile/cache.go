package binfile

import (
	"io"
	"sync"
)

const (
	blockBytes   = 1 << 13
	cachedBlocks = 128
)

// Cache reads blocks of 8 KiB and keeps the last 128 of them: 1 MiB at most.
// Table look-ups touch few places often: without it a look-up in a Go binary's
// function table takes 54 us instead of 10 (BenchmarkLookup in gopclntab).
type Cache struct {
	r io.ReaderAt

	mu     sync.Mutex // guards all below
	blocks map[int64]*block
	clock  uint64
}

type block struct {
	data []byte
	used uint64
}

// NewCache puts a cache in front of a reader.
func NewCache(r io.ReaderAt) *Cache {
	return &Cache{r: r, blocks: map[int64]*block{}}
}

// ReadAt reads like the reader behind, as long as that one's content stays.
func (c *Cache) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, io.EOF
	}
	if len(p) > blockBytes*4 { // would only push the rest out
		return c.r.ReadAt(p, off)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) {
		at := off + int64(n)
		b, err := c.block(at / blockBytes)
		in := int(at % blockBytes)
		if in >= len(b) {
			if err == nil {
				err = io.EOF
			}
			return n, err
		}
		n += copy(p[n:], b[in:])
	}
	return n, nil
}

// block gives a block, short at the end of the content. mu is held.
func (c *Cache) block(number int64) ([]byte, error) {
	c.clock++
	if b, ok := c.blocks[number]; ok {
		b.used = c.clock
		return b.data, nil
	}
	data := make([]byte, blockBytes)
	n, err := c.r.ReadAt(data, number*blockBytes)
	if err != nil && err != io.EOF {
		return data[:n], err // not kept: it may work next time
	}
	if len(c.blocks) >= cachedBlocks {
		c.evict()
	}
	c.blocks[number] = &block{data: data[:n], used: c.clock}
	return data[:n], nil
}

// evict drops the older half, so that its sweep is paid once per 64 misses.
func (c *Cache) evict() {
	limit := c.clock
	for _, b := range c.blocks {
		limit = min(limit, b.used)
	}
	limit += (c.clock - limit) / 2
	for number, b := range c.blocks {
		if b.used <= limit {
			delete(c.blocks, number)
		}
	}
}
