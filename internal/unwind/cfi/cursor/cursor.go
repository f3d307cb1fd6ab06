// Package cursor reads numbers from untrusted bytes of files.
package cursor

import "encoding/binary"

// Cursor reads little-endian values from Bytes. Reading past the end yields zeros
// and sets Bad, so that a run of reads is checked once.
type Cursor struct {
	Bytes []byte
	Pos   int
	Bad   bool
}

// More reports whether bytes are left.
func (c *Cursor) More() bool { return c.Pos < len(c.Bytes) && !c.Bad }

// Take returns the next n bytes, nil if there are fewer.
func (c *Cursor) Take(n uint64) []byte {
	if n > uint64(len(c.Bytes)-c.Pos) {
		c.Bad, c.Pos = true, len(c.Bytes)
		return nil
	}
	b := c.Bytes[c.Pos : c.Pos+int(n) : c.Pos+int(n)]
	c.Pos += int(n)
	return b
}

// U8 reads a byte.
func (c *Cursor) U8() uint8 {
	if c.Pos >= len(c.Bytes) {
		c.Bad = true
		return 0
	}
	v := c.Bytes[c.Pos]
	c.Pos++
	return v
}

// U16 reads 16 bits.
func (c *Cursor) U16() uint16 {
	if b := c.Take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 reads 32 bits.
func (c *Cursor) U32() uint32 {
	if b := c.Take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads 64 bits.
func (c *Cursor) U64() uint64 {
	if b := c.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// maxLEB is the length of the longest LEB128 number of 64 bits.
const maxLEB = 10

// ULEB reads an unsigned LEB128 number.
func (c *Cursor) ULEB() uint64 {
	var v uint64
	for i := range uint(maxLEB) {
		b := c.U8()
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v
		}
	}
	c.Bad = true
	return 0
}

// SLEB reads a signed LEB128 number.
func (c *Cursor) SLEB() int64 {
	var v int64
	for i := range uint(maxLEB) {
		b := c.U8()
		v |= int64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if shift := 7 * (i + 1); b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v
		}
	}
	c.Bad = true
	return 0
}

// CString reads up to and over a NUL.
func (c *Cursor) CString() []byte {
	for i := c.Pos; i < len(c.Bytes); i++ {
		if c.Bytes[i] == 0 {
			s := c.Bytes[c.Pos:i]
			c.Pos = i + 1
			return s
		}
	}
	c.Bad, c.Pos = true, len(c.Bytes)
	return nil
}
