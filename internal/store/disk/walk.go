package disk

import (
	"atys.dev/atys/internal/store/disk/codec"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// errDamaged says that what the database holds is not what was written.
var errDamaged = errors.New("damaged")

func isDamage(err error) bool { return errors.Is(err, errDamaged) || pebble.IsCorruptionError(err) }

// walk gives every key and value that begin with a prefix and can be read. Each
// part that cannot, or that give calls damaged, is lost; keys stay in their order.
func (d *database) walk(prefix key, give func(rest, value []byte) error, lost func(error)) error {
	return d.walkFrom(prefix, prefix, give, lost)
}

// walkFrom is walk, from a key on.
func (d *database) walkFrom(prefix, from key, give func(rest, value []byte) error, lost func(error)) error {
	for from != nil {
		last, err := d.stretch(prefix, from, give, lost)
		if err == nil || !isDamage(err) {
			return err
		}
		lost(err)
		if from, err = d.behind(prefix, last); err != nil {
			return err
		}
	}
	return nil
}

// stretch gives what lies between a key and the first that cannot be read, and
// the last that it came to.
func (d *database) stretch(prefix, from key, give func(rest, value []byte) error, lost func(error)) (last key, err error) {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err != nil {
		return from, err
	}
	last = append(last, from...)
	for valid := it.SeekGE(from); valid; valid = it.Next() {
		last = append(last[:0], it.Key()...)
		value, err := it.ValueAndErr()
		if err == nil {
			err = give(last[len(prefix):], value)
		}
		if err != nil && !isDamage(err) {
			return last, errors.Join(err, it.Close())
		}
		if err != nil {
			lost(err)
		}
	}
	err = it.Error()
	if closing := it.Close(); err == nil {
		err = closing
	}
	return last, err
}

// behind finds the nearest place behind a key from which on keys can be read
// again; nil: there is none under the prefix. Places are told apart by eight
// bytes. Strides double until there is one, then it is looked for in the last.
func (d *database) behind(prefix, last key) (key, error) {
	var eight [8]byte
	copy(eight[:], last[len(prefix):])
	place := func(n uint64) key { return binary.BigEndian.AppendUint64(append(key(nil), prefix...), n) }
	low, high := binary.BigEndian.Uint64(eight[:]), uint64(0)
	for stride := uint64(1); ; stride *= 2 {
		if stride > math.MaxUint64-low || stride == 0 {
			return nil, nil
		}
		high = low + stride
		if ok, err := d.readable(prefix, place(high)); err != nil {
			return nil, err
		} else if ok {
			break
		}
		low = high
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		ok, err := d.readable(prefix, place(middle))
		if err != nil {
			return nil, err
		}
		if ok {
			high = middle
		} else {
			low = middle
		}
	}
	return place(high), nil
}

// readable tells whether what lies at a key, or next to it, can be read.
func (d *database) readable(prefix, at key) (ok bool, err error) {
	it, err := d.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefix.after()})
	if err == nil {
		it.SeekGE(at)
		if err = it.Error(); err != nil {
			_ = it.Close() // its error is the one that is known
		} else {
			err = it.Close()
		}
	}
	if isDamage(err) {
		return false, nil
	}
	return err == nil, err
}

// table is one that lies in parts, each under the number it begins with. What is
// lost between two of them so keeps the numbers that it had.
type table struct {
	size func() int
	pad  func(size uint32)       // has what is lost be there, up to a size
	add  func(value []byte) bool // a part; false: it is damaged, and nothing was added
}

// mostLost is how many numbers may lack between two parts: a key that asks for
// more is damaged itself.
const mostLost = 1 << 26

// tail is the end of a table. Where it was lost, and with it how many numbers there
// were, what is added behind is hidden from walks, which come to the damaged block
// first, but not from who asks for its very key. So the first number of each
// stretch that was added so is noted, under a number that nothing has.
type tail struct {
	lost  bool
	notes []uint32
	next  uint32 // behind the last part that was found
}

func noteKey(prefix key) key { return append(key(nil), prefix...).number(nobody) }

// note has parts be found that begin at a number.
func (t tail) note(b *pebble.Batch, prefix key, first uint32) error {
	if !t.lost || len(t.notes) > 0 && first == t.next {
		return nil
	}
	var w codec.Writer
	for _, n := range append(t.notes, first) {
		w.Number(uint64(n))
	}
	return b.Set(noteKey(prefix), w, nil)
}

// table reads what can be read of one.
func (d *database) table(prefix key, t table, lost func(error)) (end tail, err error) {
	part := func(number uint32, value []byte) error {
		lack := int64(number) - int64(t.size())
		if lack < 0 || lack > mostLost {
			return errDamaged
		}
		if lack > 0 && !end.lost {
			lost(fmt.Errorf("%w: %d before it are missing", errDamaged, lack))
		}
		t.pad(number)
		if !t.add(value) {
			t.pad(number + 1) // so many at least were there
			return errDamaged
		}
		end.lost = false
		return nil
	}
	lose := func(err error) {
		end.lost = true
		lost(err)
	}
	err = d.walk(prefix, func(rest, value []byte) error {
		at := codec.Reader{Data: rest}
		number := at.Fixed()
		if len(rest) != 4 {
			return errDamaged
		}
		if number == nobody {
			return nil
		}
		return part(number, value)
	}, lose)
	if err != nil || !end.lost {
		return end, err
	}
	notes := codec.Reader{}
	if notes.Data, err = d.value(noteKey(prefix)); err != nil {
		return end, err
	}
	for len(notes.Data) > 0 && !notes.Bad {
		first := uint32(notes.Small(32))
		end.notes = append(end.notes, first)
		if err := d.noted(prefix, max(first, uint32(t.size())), t.size, part); err != nil {
			return end, err
		}
	}
	// Whether these were the last ones cannot be told: a key that is not there is
	// looked for in the damaged block too.
	end.lost, end.next = true, uint32(t.size())
	return end, nil
}

// noted reads parts one after another, each by its key.
func (d *database) noted(prefix key, number uint32, size func() int, part func(number uint32, value []byte) error) error {
	for {
		value, err := d.value(append(key(nil), prefix...).number(number))
		if err != nil || value == nil {
			return err
		}
		if err := part(number, value); err != nil { // it is lost as what was there before
			return nil
		}
		next := uint32(size())
		if next <= number {
			return nil // there is nothing in it, so nothing follows
		}
		number = next
	}
}

// problems are what could not be read. Of many some are told.
type problems struct {
	count int
	said  []string
}

const mostSaid = 100

func (p *problems) add(what string, err error) {
	if p.count++; p.count <= mostSaid {
		p.said = append(p.said, fmt.Sprintf("%s: %v", what, err))
	}
}
