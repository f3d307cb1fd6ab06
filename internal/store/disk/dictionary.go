package disk

import (
	"sync"
	"sync/atomic"

	"atys.dev/atys/internal/profile"
)

// call is a call in its context: a number of the same dictionary, and one of
// the tenant's places. Where nobody called, place is how the walk ended.
type call struct{ caller, place uint32 }

const nobody = ^uint32(0)

// dictionary holds the stacks of one service, numbered as they come: a caller
// before whom it calls. It only grows, so that who has read its length may read
// what is below it without a lock.
type dictionary struct {
	service string
	loaded  *atomic.Int64 // the store's calls in memory; nil while it is being read

	users int    // who took it; guarded by the tenant's mutex
	used  uint64 // when it was put back last; likewise

	mu    sync.RWMutex // guards all below
	index map[profile.Hash]uint32
	calls []call
	saved int // how many are in the database
}

// places are those of one tenant, numbered as they come.
type places struct {
	mu    sync.RWMutex // guards all below
	index map[profile.Hash]uint32
	list  []profile.Place
	saved int
	named map[uint32]*profile.Frame // whose names are not in the database yet, by the first of them
}

func newDictionary(service string) *dictionary {
	return &dictionary{service: service, index: map[profile.Hash]uint32{}}
}

func newPlaces() *places {
	return &places{index: map[profile.Hash]uint32{}, named: map[uint32]*profile.Frame{}}
}

// add finds or adds a place. Names for one that has none are kept.
func (p *places) add(place *profile.Place) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	number, ok := p.index[place.Hash]
	if !ok {
		number = uint32(len(p.list))
		p.index[place.Hash] = number
		p.list = append(p.list, profile.Place{Hash: place.Hash, Location: place.Location})
	}
	if len(p.list[number].Names) == 0 && len(place.Names) > 0 {
		p.list[number].Names = place.Names
		p.named[number] = &place.Names[0]
	}
	return number
}

// rename keeps names that came late, if the place is known.
func (p *places) rename(place *profile.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number, ok := p.index[place.Hash]; ok && len(place.Names) > 0 {
		p.list[number].Names = place.Names
		p.named[number] = &place.Names[0]
	}
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

// find gives the number of a stack.
func (d *dictionary) find(h profile.Hash) (uint32, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	number, ok := d.index[h]
	return number, ok
}

// all gives what is there now.
func (d *dictionary) all() []call {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.calls
}

// learn adds a stack of a forest, from the first of its callers that is new.
func (d *dictionary) learn(p *places, f *profile.Forest, leaf int) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var path []int
	caller := nobody
	defer func() { d.loaded.Add(int64(len(path))) }()
	for at := leaf; at >= 0; at = f.Calls[at].Caller {
		if number, ok := d.index[f.Calls[at].Hash]; ok {
			caller = number
			break
		}
		path = append(path, at)
	}
	for i := len(path) - 1; i >= 0; i-- {
		c := &f.Calls[path[i]]
		place := uint32(c.End)
		if c.Caller >= 0 {
			place = p.add(&f.Places[c.Place])
		}
		d.index[c.Hash] = uint32(len(d.calls))
		d.calls = append(d.calls, call{caller, place})
		caller = uint32(len(d.calls)) - 1
	}
	return caller
}

// restore makes a dictionary of the calls that the database holds, and works
// their hashes out. False: they do not fit each other or the places.
func (d *dictionary) restore(p *places, calls []call) bool {
	hashes := make([]profile.Hash, 0, len(calls))
	for i, c := range calls {
		var hash profile.Hash
		switch {
		case c.caller == nobody && c.place < 256:
			hash = profile.End(c.place).Hash()
		case int64(c.caller) < int64(i) && int64(c.place) < int64(p.size()):
			hash = hashes[c.caller].Call(p.at(c.place).Hash)
		default:
			return false
		}
		d.index[hash] = uint32(i)
		hashes = append(hashes, hash)
	}
	d.calls, d.saved = calls, len(calls)
	return len(d.index) == len(calls)
}

// encodeCalls writes calls: how far before each its caller is, 0 for nobody.
func encodeCalls(calls []call, first int) []byte {
	var w writer
	for i, c := range calls {
		if c.caller == nobody {
			w.number(0)
		} else {
			w.number(uint64(first+i) - uint64(c.caller))
		}
		w.number(uint64(c.place))
	}
	return w
}

func decodeCalls(data []byte, first int) (calls []call, ok bool) {
	r := reader{data: data}
	for len(r.data) > 0 {
		back, place := r.number(), r.small(32)
		c := call{nobody, uint32(place)}
		if at := uint64(first + len(calls)); back > at {
			return nil, false
		} else if back > 0 {
			c.caller = uint32(at - back)
		}
		calls = append(calls, c)
	}
	return calls, !r.bad
}
