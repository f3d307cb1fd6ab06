package disk

import "encoding/binary"

// index finds numbers of a table by what it has there: open addressing, of which
// an entry takes some six bytes, where a map would hold each key again.
type index struct {
	slots []uint32 // a number plus one; 0: none. Their count is a power of two
	used  int
}

// find gives the number for which same holds, among those of one mix.
func (x *index) find(mix uint64, same func(number uint32) bool) (number uint32, ok bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(x.slots) - 1)
	for at := mix & mask; x.slots[at] != 0; at = (at + 1) & mask {
		if number := x.slots[at] - 1; same(number) {
			return number, true
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
	old := x.slots
	x.slots = make([]uint32, max(2*len(old), fewestSlots))
	for _, slot := range old {
		if slot != 0 {
			x.put(slot-1, mix(slot-1))
		}
	}
}

func (x *index) put(number uint32, mix uint64) {
	mask := uint64(len(x.slots) - 1)
	at := mix & mask
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = number + 1
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
