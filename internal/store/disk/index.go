package disk

import "encoding/binary"

// index finds numbers of a table by what it has there: open addressing, of which
// an entry takes some six bytes, where a map would hold each key again. Numbers
// are added in their order.
type index struct {
	slots []uint32 // as slot makes them; 0: none. Their count is a power of two
	used  int
}

// slot is a number plus one, which is no more than there are slots, and in the
// bits above it some of the mix: most others are told apart without a look at what
// the table has, which is in no cache.
func (x *index) slot(number uint32, mix uint64) uint32 {
	return x.tag(mix) | (number + 1)
}

func (x *index) tag(mix uint64) uint32 { return uint32(mix>>32) &^ uint32(len(x.slots)-1) }

// find gives the number for which same holds, among those of one mix.
func (x *index) find(mix uint64, same func(number uint32) bool) (number uint32, ok bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	mask, tag := uint32(len(x.slots)-1), x.tag(mix)
	for at := uint32(mix) & mask; x.slots[at] != 0; at = (at + 1) & mask {
		if slot := x.slots[at]; slot&^mask == tag && same(slot&mask-1) {
			return slot&mask - 1, true
		}
	}
	return 0, false
}

// add adds a number that is not there yet. mix tells that of those that are.
func (x *index) add(number uint32, mix func(number uint32) uint64) {
	if x.used*4 >= len(x.slots)*3 {
		x.grow(mix)
	}
	x.put(number, mix(number))
	x.used++
}

const fewestSlots = 64

func (x *index) grow(mix func(number uint32) uint64) {
	x.slots = make([]uint32, max(2*len(x.slots), fewestSlots))
	for number := range uint32(x.used) {
		x.put(number, mix(number))
	}
}

func (x *index) put(number uint32, mix uint64) {
	mask := uint32(len(x.slots) - 1)
	at := uint32(mix) & mask
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = x.slot(number, mix)
}

// mixHash takes a hash as it is: any of its bits are as good as random, unless
// somebody works for it, whose own tenant it is that then takes longer.
func mixHash(h [16]byte) uint64 { return binary.LittleEndian.Uint64(h[:]) }

// mixCall spreads callers and places, which are small numbers, over all bits.
func mixCall(c call) uint64 {
	x := (uint64(c.caller)<<32 | uint64(c.place)) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
