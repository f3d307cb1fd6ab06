package codec

import (
	"encoding/binary"
	"math/bits"
	"slices"
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
func (w *Writer) column(numbers []uint64) {
	for len(numbers) > 0 {
		n := min(len(numbers), blockNumbers)
		w.block(numbers[:n])
		numbers = numbers[n:]
	}
}

func (w *Writer) block(numbers []uint64) {
	width := cheapest(numbers)
	*w = append(*w, width)
	if width == threes {
		w.threes(numbers)
		return
	}
	w.low(numbers, int(width&^widthWhole))
	if width&widthWhole != 0 {
		return
	}
	w.high(numbers, int(width))
	for _, v := range numbers {
		if high := v >> width; high >= mostHigh {
			w.Number(high - mostHigh)
		}
	}
}

func (w *Writer) low(numbers []uint64, width int) {
	b := newBits(*w, len(numbers)*width)
	mask := uint64(1)<<width - 1
	for _, v := range numbers {
		b.put(v&mask, width)
	}
	*w = b.end()
}

func (w *Writer) high(numbers []uint64, width int) {
	b := newBits(*w, len(numbers)*(mostHigh+1))
	for _, v := range numbers {
		high := min(v>>(width&63), mostHigh)
		b.put(1<<(high&63), int(high)+1)
	}
	*w = b.end()
}

// threes writes numbers below three.
func (w *Writer) threes(numbers []uint64) {
	some, two := newBits(*w, 2*blockNumbers+8), [blockNumbers]uint64{}
	n := 0
	for _, v := range numbers {
		some.put(min(v, 1), 1)
		two[n] = v >> 1
		n += int(min(v, 1))
	}
	*w = some.end()
	w.low(two[:n], 1)
}

// cheapest tells which width takes least, or that threes does. Near what numbers
// are on average, what a width takes falls and then rises, but for a few bits.
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
	usual := min(max(bits.Len64(sum/uint64(len(numbers)))-1, 0), mostWidth)
	for _, step := range []int{-1, 1} {
		before := 1 << 62
		for width := usual; 0 <= width && width <= mostWidth; width += step {
			taken := taken(numbers, most, width)
			if taken < least {
				best, least = byte(width), taken
			}
			if taken > before {
				break
			}
			before = taken
		}
	}
	return best
}

// taken is how many bits numbers take of which so many low ones are written as they
// are; most is the largest.
func taken(numbers []uint64, most uint64, width int) int {
	high := uint64(0)
	if most>>width < mostHigh {
		for _, v := range numbers {
			high += v >> (width & 63) // which spares asking whether it is more
		}
		return (width+1)*len(numbers) + int(high)
	}
	for _, v := range numbers {
		left := v >> width
		high += min(left, mostHigh)
		if left >= mostHigh {
			high += 8 * (1 + uint64(bits.Len64(left-mostHigh))/7)
		}
	}
	return (width+1)*len(numbers) + int(high)
}

// bitWriter appends bits: what is not a byte yet is written all the same, and again
// with the next.
type bitWriter struct {
	to   []byte
	at   int // so many bytes of it are done
	bits uint64
	n    int
}

// newBits is for so many bits.
func newBits(to []byte, most int) bitWriter {
	at := len(to)
	return bitWriter{to: slices.Grow(to, most/8+8)[:at+most/8+8], at: at}
}

// put appends a number of n bits, mostWidth at most.
func (b *bitWriter) put(v uint64, n int) {
	b.bits |= v << (b.n & 63)
	b.n += n
	binary.LittleEndian.PutUint64(b.to[b.at:], b.bits)
	b.at += b.n >> 3
	b.bits >>= b.n & 56
	b.n &= 7
}

// end ends the last byte.
func (b *bitWriter) end() []byte { return b.to[:b.at+(b.n+7)/8] }

// readColumn reads as many numbers as there is room for.
func readColumn[T ~uint32 | int64](r *Reader, out []T) {
	for len(out) > 0 && !r.Bad {
		n := min(len(out), blockNumbers)
		readBlock(r, out[:n])
		out = out[n:]
	}
}

func readBlock[T ~uint32 | int64](r *Reader, out []T) {
	head := r.Bytes(1)[0]
	if head == threes {
		readThrees(r, out)
		return
	}
	width := int(head &^ widthWhole)
	low := (len(out)*width + 7) / 8
	if r.Bad || width > mostWidth || low > len(r.Data) {
		r.Bad, r.Data = true, nil
		return
	}
	readLow(padded(r.Data, low), out, width)
	r.Data = r.Data[low:]
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

func readLow[T ~uint32 | int64](data []byte, out []T, width int) {
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

func readThrees[T ~uint32 | int64](r *Reader, out []T) {
	var word [8]byte
	copy(word[:], r.Bytes((len(out)+7)/8))
	some := binary.LittleEndian.Uint64(word[:])
	word = [8]byte{}
	copy(word[:], r.Bytes((bits.OnesCount64(some)+7)/8))
	two := binary.LittleEndian.Uint64(word[:])
	for i := range out {
		is := some & 1
		out[i] = T(is + two&is)
		some >>= 1
		two >>= is
	}
}

// readHigh adds what is left of each number.
func readHigh[T ~uint32 | int64](r *Reader, out []T, width int) {
	const most = (blockNumbers*(mostHigh+1) + 7) / 8
	data := padded(r.Data, min(most, len(r.Data)))
	end := 8 * len(r.Data)
	long, last, i := 0, -1, 0
	for at := 0; i < len(out); at += 64 {
		if at >= end {
			r.Bad, r.Data = true, nil
			return
		}
		for ones := binary.LittleEndian.Uint64(data[at>>3:]); ones != 0; ones &= ones - 1 {
			one := at + bits.TrailingZeros64(ones)
			high := one - last - 1
			last = one
			if high >= mostHigh {
				r.Bad = r.Bad || high > mostHigh
				long++
			}
			out[i] += T(high) << width
			if i++; i == len(out) {
				break
			}
		}
	}
	if last >= end {
		r.Bad, r.Data = true, nil
		return
	}
	r.Data = r.Data[last/8+1:]
	if long > 0 {
		readMore(r, out, width)
	}
}

// readMore adds what sixteen zeros did not tell.
func readMore[T ~uint32 | int64](r *Reader, out []T, width int) {
	for i := range out {
		if uint64(out[i])>>width == mostHigh {
			out[i] += T(r.Number()) << width
		}
	}
}
