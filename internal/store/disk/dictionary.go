package disk

import (
	"atys.dev/atys/internal/store/disk/codec"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
)

// call is a call in its context: a number of the same dictionary, and one of
// the tenant's places. Where nobody called, place is how the walk ended, or which
// call this was that is lost.
type call struct{ caller, place uint32 }

const nobody = ^uint32(0)

// ends is behind all ways for a walk to end.
const ends = 1 << 8

// lostCall is a call that was damaged. It is like no other one.
func lostCall(number int) call { return call{nobody, ends + uint32(number)} }

func (c call) lost() bool { return c.caller == nobody && c.place >= ends }

// end is how the walk ended that a call without a caller begins.
func (c call) end() profile.End {
	if c.lost() {
		return profile.EndDamaged
	}
	return profile.End(c.place)
}

// dictionary holds the stacks of one service, numbered as they come: a caller
// before whom it calls. Those that samples end at, which are few of them, are
// leaves, and numbered as they come again: rows hold these, so that those that
// are hot are near each other. It only grows, so that who has read its length may
// read what is below it without a lock.
type dictionary struct {
	service  string
	loaded   *atomic.Int64 // the store's calls in memory; nil while it is being read
	problems problems      // what of it is damaged, since it was read

	users int    // who took it; guarded by the tenant's mutex
	used  uint64 // when it was put back last; likewise

	mu          sync.RWMutex // guards all below
	calls       []call
	byCall      index
	leaves      []uint32       // calls
	hashes      []profile.Hash // of the leaves' stacks
	byHash      index          // of leaves
	saved       int            // how many calls are in the database
	savedLeaves int            // likewise
	tail        tail           // of the calls in the database
	leavesTail  tail
	cleared     bool // the database still has another one, of stacks that no window names
}

// places are those of one tenant, numbered as they come.
type places struct {
	mu    sync.RWMutex // guards all below
	index map[profile.Hash]uint32
	list  []profile.Place
	known []bool // which of these are named; the end may lack
	saved int
	tail  tail     // in the database
	named []uint32 // whose names are not in the database yet, as they came
}

func newPlaces() *places { return &places{index: map[profile.Hash]uint32{}} }

// add finds or adds a place. Names for one that has none, or only a number, are
// kept.
func (p *places) add(place *profile.Place) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	number, ok := p.index[place.Hash]
	if !ok {
		number = uint32(len(p.list))
		p.index[place.Hash] = number
		p.list = append(p.list, profile.Place{Hash: place.Hash, Location: place.Location})
	}
	p.improve(number, place)
	return number
}

// improve keeps names that are better than what there is. The places are locked.
func (p *places) improve(number uint32, place *profile.Place) {
	if p.isNamed(number) {
		return
	}
	kept := &p.list[number]
	if len(kept.Names) == 0 && len(place.Names) > 0 || place.Named() {
		kept.Names = place.Names
		p.named = append(p.named, number)
	}
}

// isNamed tells whether a place has names. Places are large and in no cache, and
// each is asked for with each explanation of a stack: once they have names, that is
// known without a look at them. The places are locked.
func (p *places) isNamed(number uint32) bool {
	if more := len(p.list) - len(p.known); more > 0 {
		p.known = append(p.known, make([]bool, more)...)
	}
	if !p.known[number] {
		p.known[number] = p.list[number].Named()
	}
	return p.known[number]
}

// improveAll takes the names that somebody knows of places that are known. Those
// that were found by a lesson have theirs.
func (p *places) improveAll(f *profile.Forest, found []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range f.Places {
		if found != nil && found[i] != 0 {
			continue
		}
		if number, ok := p.index[f.Places[i].Hash]; ok {
			p.improve(number, &f.Places[i])
		}
	}
}

// rename keeps names that came late, if the place is known.
func (p *places) rename(place *profile.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number, ok := p.index[place.Hash]; ok && len(place.Names) > 0 {
		p.list[number].Names = place.Names
		p.named = append(p.named, number)
	}
}

// unnamed lists places in files that nobody has named.
func (p *places) unnamed() (all []profile.Place) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for i := range p.list {
		if place := &p.list[i]; place.Location.BuildID != "" && !place.Named() {
			all = append(all, *place)
		}
	}
	return all
}

// at gives a place as it is called now.
func (p *places) at(number uint32) profile.Place {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if int64(number) >= int64(len(p.list)) {
		return profile.Place{}
	}
	return p.list[number]
}

func (p *places) size() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.list)
}

func (p *places) save(b *pebble.Batch, tenant string) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := len(p.list)
	if p.saved < count {
		var w codec.Writer
		for _, place := range p.list[p.saved:] {
			w.Location(place.Location)
		}
		prefix := newKey(spacePlaces, tenant)
		err = errors.Join(p.tail.note(b, prefix, uint32(p.saved)), b.Set(prefix.number(uint32(p.saved)), w, nil))
	}
	named := len(p.named)
	for _, number := range p.named {
		var w codec.Writer
		w.Frames(p.list[number].Names)
		err = errors.Join(err, b.Set(newKey(spaceNames, tenant).number(number), w, nil))
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.saved < count {
			p.saved, p.tail = count, tail{}
		}
		p.named = p.named[named:]
	}, err
}

// find fills the leaves in of stacks that are some, where they are unresolved. It
// takes the lock once for all: what is looked up is in no cache, and a processor
// waits for several of them at once, but for none beyond a lock.
func (d *dictionary) find(stacks []profile.Hash, wanted []profile.StackID, leaves []uint32) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, stack := range wanted {
		if h := stacks[stack]; leaves[stack] == unresolved {
			if leaf, ok := d.byHash.find(mixHash(h), func(leaf uint32) bool { return d.hashes[leaf] == h }); ok {
				leaves[stack] = leaf
			}
		}
	}
}

// leaf gives the leaf of a stack, and makes the call one that it ends at, if nobody
// has meanwhile. The dictionary is locked.
func (d *dictionary) leaf(number uint32, stack profile.Hash) uint32 {
	leaf, ok := d.byHash.find(mixHash(stack), func(leaf uint32) bool { return d.hashes[leaf] == stack })
	if !ok {
		leaf = uint32(len(d.leaves))
		d.leaves, d.hashes = append(d.leaves, number), append(d.hashes, stack)
		d.byHash.add(leaf, func(leaf uint32) uint64 { return mixHash(d.hashes[leaf]) })
	}
	return leaf
}

// number finds or adds a call. The dictionary is locked.
func (d *dictionary) number(c call) uint32 {
	number, ok := d.byCall.find(mixCall(c), func(number uint32) bool { return d.calls[number] == c })
	if !ok {
		number = uint32(len(d.calls))
		d.calls = append(d.calls, c)
		d.byCall.add(number, func(number uint32) uint64 { return mixCall(d.calls[number]) })
	}
	return number
}

// all gives what is there now.
func (d *dictionary) all() (calls []call, leaves []uint32) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.calls, d.leaves
}

// frames lists the frames of a stack, innermost first, by the names that there are now.
func (d *dictionary) frames(p *places, leaf uint32) (frames []profile.Frame) {
	calls, leaves := d.all()
	for c := calls[leaves[leaf]]; c.caller != nobody; c = calls[c.caller] {
		place := p.at(c.place)
		frames = append(frames, place.Frames()...)
	}
	return frames
}

// stacks gives the hashes of the leaves' stacks that are there now.
func (d *dictionary) stacks() []profile.Hash {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.hashes
}

// size is how many leaves there are now.
func (d *dictionary) size() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.leaves)
}

// lesson is a forest that the dictionaries of a tenant learn stacks of, one after
// another: each looks up each of its calls once, and all of them each of its places.
type lesson struct {
	forest  *profile.Forest
	places  []uint32 // by the forest's, plus one; 0: not looked up. Of the tenant
	calls   []uint32 // likewise; of the dictionary
	learned []int    // those of the calls that are not 0
}

func newLesson(f *profile.Forest) *lesson {
	return &lesson{forest: f, places: make([]uint32, len(f.Places)), calls: make([]uint32, len(f.Calls))}
}

// forget has another dictionary learn.
func (l *lesson) forget() {
	for _, at := range l.learned {
		l.calls[at] = 0
	}
	l.learned = l.learned[:0]
}

// found are the places as they were looked up; nil: there was no lesson.
func (l *lesson) found() []uint32 {
	if l == nil {
		return nil
	}
	return l.places
}

// learn adds a stack, and gives its leaf.
func (d *dictionary) learn(p *places, l *lesson, leaf int) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.calls)
	number := d.learnCall(p, l, leaf)
	d.loaded.Add(int64(len(d.calls) - before))
	return d.leaf(number, l.forest.Calls[leaf].Hash)
}

func (d *dictionary) learnCall(p *places, l *lesson, leaf int) uint32 {
	var path []int // from the leaf to who is known
	at := leaf
	for ; at >= 0 && l.calls[at] == 0; at = l.forest.Calls[at].Caller {
		path = append(path, at)
	}
	caller := nobody
	if at >= 0 {
		caller = l.calls[at] - 1
	}
	for _, at := range slices.Backward(path) {
		c := call{caller, uint32(l.forest.Calls[at].End)}
		if caller != nobody {
			c.place = l.place(p, l.forest.Calls[at].Place)
		}
		caller = d.number(c)
		l.calls[at] = caller + 1
	}
	l.learned = append(l.learned, path...)
	return caller
}

func (l *lesson) place(p *places, of int) uint32 {
	if l.places[of] == 0 {
		l.places[of] = p.add(&l.forest.Places[of]) + 1
	}
	return l.places[of] - 1
}

// restore makes a dictionary of the calls and leaves that the database holds, and
// works hashes out. Those of what is lost, and of all that it called, are none
// that a stack has.
func (d *dictionary) restore(p *places, calls []call, leaves []uint32) {
	if slices.Contains(leaves, nobody) {
		calls = append(calls, lostCall(len(calls)))
	}
	d.calls, d.saved, d.savedLeaves = calls, len(calls), len(leaves)
	hashes := make([]profile.Hash, 0, len(calls))
	for i, c := range calls {
		switch {
		case c.lost():
			hashes = append(hashes, lostHash(uint64(i)))
		case c.caller == nobody:
			hashes = append(hashes, c.end().Hash())
		default:
			if int64(c.place) >= int64(p.size()) {
				d.problems.add("calls", fmt.Errorf("%w: place %d is missing", errDamaged, c.place))
				p.lose(uint32(min(int64(c.place)+1, int64(p.size())+mostLost)))
			}
			hashes = append(hashes, hashes[c.caller].Call(p.at(c.place).Hash))
		}
		d.byCall.add(uint32(i), func(number uint32) uint64 { return mixCall(d.calls[number]) })
	}
	for i, number := range leaves {
		hash := lostHash(uint64(i) | 1<<32)
		if number == nobody {
			number = uint32(len(calls)) - 1
		} else {
			hash = hashes[number]
		}
		d.leaves, d.hashes = append(d.leaves, number), append(d.hashes, hash)
		d.byHash.add(uint32(i), func(leaf uint32) uint64 { return mixHash(d.hashes[leaf]) })
	}
}

// encodeCalls writes calls: how far before each its caller is, 0 for nobody.
func encodeCalls(calls []call, first int) []byte {
	var w codec.Writer
	for i, c := range calls {
		if c.caller == nobody {
			w.Number(0)
		} else {
			w.Number(uint64(first+i) - uint64(c.caller))
		}
		w.Number(uint64(c.place))
	}
	return w
}

func decodeCalls(data []byte, first int) (calls []call, ok bool) {
	r := codec.Reader{Data: data}
	for len(r.Data) > 0 {
		back, place := r.Number(), r.Small(32)
		c := call{nobody, uint32(place)}
		if at := uint64(first + len(calls)); back > at {
			return nil, false
		} else if back > 0 {
			c.caller = uint32(at - back)
		}
		calls = append(calls, c)
	}
	return calls, !r.Bad
}

// encodeLeaves writes leaves: how far behind the one before each is.
func encodeLeaves(leaves []uint32) []byte {
	var w codec.Writer
	before := int64(0)
	for _, number := range leaves {
		w.Signed(int64(number) - before)
		before = int64(number)
	}
	return w
}

func decodeLeaves(data []byte) (leaves []uint32, ok bool) {
	r := codec.Reader{Data: data}
	for number := int64(0); len(r.Data) > 0; {
		number += r.Signed()
		if number < 0 || number >= int64(nobody) {
			return nil, false
		}
		leaves = append(leaves, uint32(number))
	}
	return leaves, !r.Bad
}

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
