package dwarf

import (
	"bytes"
	"encoding/binary"
)

// Encodings of values (DW_FORM_*), of DWARF 2 to 5 and GNU.
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// class says what a value's number means.
type class uint8

const (
	classNone     class = iota
	classAddress        // an address
	classAddrx          // an index into .debug_addr
	classNumber         // a constant
	classOffset         // an offset of another section
	classRef            // an offset of .debug_info
	classRefAlt         // an offset of the shared file's .debug_info
	classInline         // a string at this place of the unit
	classStrp           // an offset of .debug_str
	classLineStrp       // an offset of .debug_line_str
	classStrx           // an index into .debug_str_offsets
	classStrpAlt        // an offset of the shared file's .debug_str
	classRnglistx       // an index into .debug_rnglists
)

type value struct {
	class class
	n     uint64
}

// fixedSize gives the bytes a value takes, -1 if they vary or are not known.
func fixedSize(form uint16, u *unit) int {
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return int(u.addrSize)
	case formStrp, formLineStrp, formSecOffset, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		return u.wordSize()
	case formRefAddr:
		if u.version <= 2 {
			return int(u.addrSize)
		}
		return u.wordSize()
	}
	return -1
}

// value reads a value. An unknown encoding makes the cursor bad: nothing behind
// it can be read.
func (c *cursor) value(f field, u *unit) value {
	switch f.form {
	case formAddr:
		return value{classAddress, c.fixed(int(u.addrSize))}
	case formData1, formFlag:
		return value{classNumber, uint64(c.u8())}
	case formData2:
		return value{classNumber, uint64(c.u16())}
	case formData4, formData8:
		return c.dataOrOffset(f, u)
	case formSdata:
		return value{classNumber, uint64(c.sleb())}
	case formUdata:
		return value{classNumber, c.uleb()}
	case formImplicitConst:
		return value{classNumber, uint64(f.implicit)}
	case formFlagPresent:
		return value{classNumber, 1}
	case formSecOffset:
		return value{classOffset, c.word(u.wide)}
	case formRef1, formRef2, formRef4, formRef8:
		return value{classRef, u.off + c.fixed(fixedSize(f.form, u))}
	case formRefUdata:
		return value{classRef, u.off + c.uleb()}
	case formRefAddr:
		return value{classRef, c.fixed(fixedSize(f.form, u))}
	case formRefSup4, formRefSup8, formGNURefAlt:
		return value{classRefAlt, c.fixed(fixedSize(f.form, u))}
	case formIndirect:
		form := c.uleb()
		if form == formIndirect || form > 0xffff || form == formImplicitConst {
			c.bad = true
			return value{}
		}
		return c.value(field{attr: f.attr, form: uint16(form)}, u)
	}
	if v, ok := c.indexed(f, u); ok {
		return v
	}
	c.skipBlock(f, u)
	return value{}
}

// dataOrOffset reads numbers that before DWARF 4 were offsets, too.
func (c *cursor) dataOrOffset(f field, u *unit) value {
	n := c.fixed(fixedSize(f.form, u))
	if u.version < 4 && (f.attr == attrRanges || f.attr == attrStmtList) {
		return value{classOffset, n}
	}
	return value{classNumber, n}
}

// indexed reads strings, and values that are looked up in tables.
func (c *cursor) indexed(f field, u *unit) (value, bool) {
	switch f.form {
	case formString:
		at := c.at
		if i := bytes.IndexByte(c.data[c.at:], 0); i >= 0 {
			c.at += i + 1
		} else {
			c.at, c.bad = len(c.data), true
		}
		return value{classInline, uint64(at)}, true
	case formStrp:
		return value{classStrp, c.word(u.wide)}, true
	case formLineStrp:
		return value{classLineStrp, c.word(u.wide)}, true
	case formStrpSup, formGNUStrpAlt:
		return value{classStrpAlt, c.word(u.wide)}, true
	case formStrx, formGNUStrIndex:
		return value{classStrx, c.uleb()}, true
	case formStrx1, formStrx2, formStrx3, formStrx4:
		return value{classStrx, c.fixed(fixedSize(f.form, u))}, true
	case formAddrx, formGNUAddrIndex:
		return value{classAddrx, c.uleb()}, true
	case formAddrx1, formAddrx2, formAddrx3, formAddrx4:
		return value{classAddrx, c.fixed(fixedSize(f.form, u))}, true
	case formRnglistx:
		return value{classRnglistx, c.uleb()}, true
	}
	return value{}, false
}

// skipBlock skips what is never looked at.
func (c *cursor) skipBlock(f field, u *unit) {
	switch f.form {
	case formBlock1:
		c.skip(uint64(c.u8()))
	case formBlock2:
		c.skip(uint64(c.u16()))
	case formBlock4:
		c.skip(uint64(c.u32()))
	case formBlock, formExprloc:
		c.skip(c.uleb())
	case formLoclistx:
		c.uleb()
	case formData16, formRefSig8:
		c.skip(uint64(fixedSize(f.form, u)))
	default:
		c.bad = true
	}
}

// string gives the string that a value of a unit stands for.
func (u *unit) string(v value) string {
	d := u.data
	switch v.class {
	case classInline:
		c := cursor{data: u.buf, at: int(min(v.n, uint64(len(u.buf))))}
		return c.string()
	case classStrp:
		return d.stringAt("str", v.n)
	case classLineStrp:
		return d.stringAt("line_str", v.n)
	case classStrpAlt:
		if d.alt != nil {
			return d.alt.stringAt("str", v.n)
		}
	case classStrx:
		size := u.wordSize()
		if v.n > 1<<32 {
			return ""
		}
		word := d.bytes("str_offsets", u.strBase+v.n*uint64(size), size)
		if len(word) < size {
			return ""
		}
		if size == 8 {
			return d.stringAt("str", binary.LittleEndian.Uint64(word))
		}
		return d.stringAt("str", uint64(binary.LittleEndian.Uint32(word)))
	}
	return ""
}

const maxString = 1 << 16

func (d *Data) stringAt(section string, off uint64) string {
	for size := 128; ; size *= 8 {
		data := d.bytes(section, off, min(size, maxString))
		if s, _, ok := bytes.Cut(data, []byte{0}); ok {
			return string(s)
		}
		if len(data) < size || size >= maxString {
			return ""
		}
	}
}

// address gives the address that a value of a unit stands for.
func (u *unit) address(v value) (uint64, bool) {
	switch v.class {
	case classAddress:
		return v.n, true
	case classAddrx:
		if v.n > 1<<32 {
			return 0, false
		}
		size := int(u.addrSize)
		word := u.addrs().bytes("addr", u.addrBase+v.n*uint64(size), size)
		if len(word) < size {
			return 0, false
		}
		c := cursor{data: word}
		return c.fixed(size), true
	}
	return 0, false
}
