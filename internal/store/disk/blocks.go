package disk

import (
	"encoding/binary"
	"math/bits"
)

// A column of numbers that are mostly small, in blocks of 64. A block:
//
//	width  1 byte: so many low bits of each number are written as they are; its
//	       highest bit says that nothing is left of any then
//	low    width bits of each, the first in the lowest bits of the first byte
//	high   what is left of each: as many zeros, and a one. Sixteen zeros say that
//	       sixteen is left, and
//	more   for each such number, in bytes that go on while their highest bit is set
//
// Or, where all are below three, as the weights of single samples are:
//
//	threes 1 byte, which no width is
//	some   a bit of each number: it is not zero
//	two    a bit of each such number: it is two
//
// Each part begins with a byte. A merge reads 60 million rows of several columns:
// low is read eight numbers at once, the others without a branch for each bit.
const (
	blockNumbers = 64
	widthWhole   = 0x80
	mostWidth    = 56 // that one load reads, wherever in a byte it begins
	mostHigh     = 16
	threes       = mostWidth + 1
)

// column appends numbers.
func (w *writer) column(numbers []uint64) {
	for len(numbers) > 0 {
		n := min(len(numbers), blockNumbers)
		w.block(numbers[:n])
		numbers = numbers[n:]
	}
}

func (w *writer) block(numbers []uint64) {
	width := cheapest(numbers)
	*w = append(*w, width)
	if width == threes {
		w.threes(numbers)
		return
	}
	var b bitWriter
	mask := uint64(1)<<(width&^widthWhole) - 1
	for _, v := range numbers {
		b.put(w, v&mask, int(width&^widthWhole))
	}
	b.fill(w)
	if width&widthWhole != 0 {
		return
	}
	for _, v := range numbers {
		high := min(v>>width, mostHigh)
		b.put(w, 1<<high, int(high)+1)
	}
	b.fill(w)
	for _, v := range numbers {
		if high := v >> width; high >= mostHigh {
			w.number(high - mostHigh)
		}
	}
}

// threes writes numbers below three.
func (w *writer) threes(numbers []uint64) {
	var some, two bitWriter
	var behind writer
	for _, v := range numbers {
		some.put(w, min(v, 1), 1)
		if v > 0 {
			two.put(&behind, v-1, 1)
		}
	}
	some.fill(w)
	two.fill(&behind)
	*w = append(*w, behind...)
}

// cheapest tells which width takes least, or that threes does.
func cheapest(numbers []uint64) byte {
	most, sum, some := uint64(0), uint64(0), 0
	for _, v := range numbers {
		most = max(most, v)
		sum += min(v, 1<<mostWidth)
		some += int(min(v, 1))
	}
	best, least := byte(mostWidth), 1<<62
	if all := bits.Len64(most); all <= mostWidth {
		best, least = byte(all)|widthWhole, all*len(numbers)
	}
	if most < 3 && len(numbers)+some < least {
		best, least = threes, len(numbers)+some
	}
	typical := bits.Len64(sum / uint64(len(numbers)))
	for width := max(0, typical-4); width <= min(typical+1, mostWidth); width++ {
		taken := (width + 1) * len(numbers)
		for _, v := range numbers {
			high := v >> width
			taken += int(min(high, mostHigh))
			if high >= mostHigh {
				taken += 8 * (1 + bits.Len64(high-mostHigh)/7)
			}
		}
		if taken < least {
			best, least = byte(width), taken
		}
	}
	return best
}

// bitWriter gathers bits until they are bytes.
type bitWriter struct {
	bits uint64
	n    int
}

func (b *bitWriter) put(w *writer, v uint64, n int) {
	b.bits |= v << b.n
	for b.n += n; b.n >= 8; b.n -= 8 {
		*w = append(*w, byte(b.bits))
		b.bits >>= 8
	}
}

// fill ends the last byte.
func (b *bitWriter) fill(w *writer) {
	if b.n > 0 {
		*w = append(*w, byte(b.bits))
	}
	*b = bitWriter{}
}

// readColumn reads as many numbers as there is room for.
func readColumn[T uint32 | int64](r *reader, out []T) {
	for len(out) > 0 && !r.bad {
		n := min(len(out), blockNumbers)
		readBlock(r, out[:n])
		out = out[n:]
	}
}

func readBlock[T uint32 | int64](r *reader, out []T) {
	head := r.bytes(1)[0]
	if head == threes {
		readThrees(r, out)
		return
	}
	width := int(head &^ widthWhole)
	low := (len(out)*width + 7) / 8
	if r.bad || width > mostWidth || low > len(r.data) {
		r.bad, r.data = true, nil
		return
	}
	readLow(padded(r.data, low), out, width)
	r.data = r.data[low:]
	if head&widthWhole == 0 {
		readHigh(r, out, width)
	}
}

// padded gives data of which eight bytes can be read at any place below n.
func padded(data []byte, n int) []byte {
	if len(data) >= n+8 {
		return data
	}
	return append(append(make([]byte, 0, len(data)+8), data...), zeros[:8]...)
}

func readLow[T uint32 | int64](data []byte, out []T, width int) {
	mask := uint64(1)<<width - 1
	switch {
	case width == 0:
		clear(out)
	case width <= 8:
		for ; len(out) >= 8; out = out[8:] {
			eight, group := out[:8], binary.LittleEndian.Uint64(data)
			for i := range eight {
				eight[i] = T(group & mask)
				group >>= width
			}
			data = data[width:]
		}
		fallthrough
	default:
		for i := range out {
			at := i * width
			out[i] = T(binary.LittleEndian.Uint64(data[at>>3:]) >> (at & 7) & mask)
		}
	}
}

func readThrees[T uint32 | int64](r *reader, out []T) {
	var word [8]byte
	copy(word[:], r.bytes((len(out)+7)/8))
	some := binary.LittleEndian.Uint64(word[:])
	word = [8]byte{}
	copy(word[:], r.bytes((bits.OnesCount64(some)+7)/8))
	two := binary.LittleEndian.Uint64(word[:])
	for i := range out {
		is := some & 1
		out[i] = T(is + two&is)
		some >>= 1
		two >>= is
	}
}

// readHigh adds what is left of each number.
func readHigh[T uint32 | int64](r *reader, out []T, width int) {
	const most = (blockNumbers*(mostHigh+1) + 7) / 8
	data := padded(r.data, min(most, len(r.data)))
	end := 8 * len(r.data)
	long, last, i := 0, -1, 0
	for at := 0; i < len(out); at += 64 {
		if at >= end {
			r.bad, r.data = true, nil
			return
		}
		for ones := binary.LittleEndian.Uint64(data[at>>3:]); ones != 0; ones &= ones - 1 {
			one := at + bits.TrailingZeros64(ones)
			high := one - last - 1
			last = one
			if high >= mostHigh {
				r.bad = r.bad || high > mostHigh
				long++
			}
			out[i] += T(high) << width
			if i++; i == len(out) {
				break
			}
		}
	}
	if last >= end {
		r.bad, r.data = true, nil
		return
	}
	r.data = r.data[last/8+1:]
	if long > 0 {
		readMore(r, out, width)
	}
}

// readMore adds what sixteen zeros did not tell.
func readMore[T uint32 | int64](r *reader, out []T, width int) {
	for i := range out {
		if uint64(out[i])>>width == mostHigh {
			out[i] += T(r.number()) << width
		}
	}
}
