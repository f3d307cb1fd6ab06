package dwarf

import "encoding/binary"

// cursor reads numbers one after the other. Past the end it reads zeros and
// remembers it.
type cursor struct {
	data []byte
	at   int
	bad  bool
}

func (c *cursor) skip(n uint64) {
	if n > uint64(len(c.data)-c.at) {
		c.at, c.bad = len(c.data), true
		return
	}
	c.at += int(n)
}

func (c *cursor) u8() uint8 {
	if c.at >= len(c.data) {
		c.bad = true
		return 0
	}
	b := c.data[c.at]
	c.at++
	return b
}

// fixed reads a number of n bytes, at most 8.
func (c *cursor) fixed(n int) uint64 {
	if n > len(c.data)-c.at {
		c.at, c.bad = len(c.data), true
		return 0
	}
	p := c.data[c.at:]
	c.at += n
	switch n {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	case 8:
		return binary.LittleEndian.Uint64(p)
	}
	var v uint64
	for i := range n {
		v |= uint64(p[i]) << (8 * i)
	}
	return v
}

func (c *cursor) u16() uint16 { return uint16(c.fixed(2)) }
func (c *cursor) u32() uint32 { return uint32(c.fixed(4)) }
func (c *cursor) u64() uint64 { return c.fixed(8) }

func (c *cursor) uleb() (v uint64) {
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b < 0x80 {
			return v
		}
	}
}

func (c *cursor) sleb() (v int64) {
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if shift < 64 {
			v |= int64(b&0x7f) << shift
		}
		if b < 0x80 {
			if b&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// string reads up to a NUL.
func (c *cursor) string() string {
	start := c.at
	for c.at < len(c.data) {
		if c.data[c.at] == 0 {
			c.at++
			return string(c.data[start : c.at-1])
		}
		c.at++
	}
	c.bad = true
	return ""
}

// length reads a unit's length in the 32-bit or 64-bit format.
func (c *cursor) length() (n uint64, wide bool) {
	first := c.u32()
	if first == 0xffffffff {
		return c.u64(), true
	}
	if first >= 0xfffffff0 {
		c.bad = true
	}
	return uint64(first), false
}

// word reads an offset in the format's size.
func (c *cursor) word(wide bool) uint64 {
	if wide {
		return c.u64()
	}
	return uint64(c.u32())
}
