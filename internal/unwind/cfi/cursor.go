package cfi

import "encoding/binary"

// cursor reads little-endian values from foreign bytes. Reading past the end
// yields zeros and sets bad, so that a run of reads is checked once.
type cursor struct {
	b   []byte
	p   int
	bad bool
}

func (c *cursor) more() bool { return c.p < len(c.b) && !c.bad }

// take returns the next n bytes, nil if there are fewer.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)-c.p) {
		c.bad, c.p = true, len(c.b)
		return nil
	}
	b := c.b[c.p : c.p+int(n) : c.p+int(n)]
	c.p += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if c.p >= len(c.b) {
		c.bad = true
		return 0
	}
	v := c.b[c.p]
	c.p++
	return v
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// maxLEB is the length of the longest LEB128 number of 64 bits.
const maxLEB = 10

func (c *cursor) uleb() uint64 {
	var v uint64
	for i := range uint(maxLEB) {
		b := c.u8()
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v
		}
	}
	c.bad = true
	return 0
}

func (c *cursor) sleb() int64 {
	var v int64
	for i := range uint(maxLEB) {
		b := c.u8()
		v |= int64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if shift := 7 * (i + 1); b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v
		}
	}
	c.bad = true
	return 0
}

// cstring reads up to and over a NUL.
func (c *cursor) cstring() []byte {
	for i := c.p; i < len(c.b); i++ {
		if c.b[i] == 0 {
			s := c.b[c.p:i]
			c.p = i + 1
			return s
		}
	}
	c.bad, c.p = true, len(c.b)
	return nil
}
