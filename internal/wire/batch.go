package wire

import (
	"maps"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// Batch puts windows under one table of stacks. Use NewBatch.
type Batch struct {
	request    *atysv1.PushRequest
	known      func(profile.Hash) bool
	hashes     []profile.Hash
	stacks     map[profile.Hash]uint32
	dictionary *dictionary
}

// NewBatch begins a batch for a receiver that knows the stacks that known tells.
func NewBatch(known func(profile.Hash) bool) *Batch {
	return &Batch{request: &atysv1.PushRequest{}, known: known, stacks: map[profile.Hash]uint32{}, dictionary: newDictionary()}
}

// Add adds a window. It stays as it is, and may be added to another batch.
func (b *Batch) Add(s *atysv1.Spooled) error {
	hashes, err := Hashes(s.GetStacks())
	if err != nil {
		return err
	}
	if err := CheckRows(s.GetWindow(), len(hashes)); err != nil {
		return err
	}
	number := make([]uint32, len(hashes))
	var unknown []profile.Hash
	for i, hash := range hashes {
		n, ok := b.stacks[hash]
		if !ok {
			n = uint32(len(b.hashes))
			b.stacks[hash] = n
			b.hashes = append(b.hashes, hash)
			if !b.known(hash) {
				unknown = append(unknown, hash)
			}
		}
		number[i] = n
	}
	if err := b.explain(unknown, s.GetDictionary()); err != nil {
		return err
	}
	w := proto.CloneOf(s.GetWindow())
	for i, stack := range w.GetRows().GetStack() {
		w.Rows.Stack[i] = number[stack]
	}
	w.Series = b.series(s.GetSeries())
	b.request.Windows = append(b.request.Windows, w)
	return nil
}

// explain adds stacks to the dictionary that goes along.
func (b *Batch) explain(hashes []profile.Hash, from *atysv1.Dictionary) error {
	if len(hashes) == 0 {
		return nil
	}
	l, err := Learn(from)
	if err != nil {
		return err
	}
	nodes := l.Index()
	places := make([]place, len(l.Places))
	added := make([]bool, len(l.Places))
	for _, hash := range hashes {
		node, ok := nodes[hash]
		if !ok {
			return malformed("a window's stack is not in its dictionary")
		}
		calls, end := l.Stack(node)
		s := profile.Stack{End: end}
		for _, p := range calls {
			if !added[p] {
				places[p], added[p] = b.dictionary.location(l.Places[p].Location, l.Places[p].Names), true
			}
			s.Locations = append(s.Locations, profile.LocationID(p))
		}
		b.dictionary.stack(places, s)
	}
	return nil
}

func (b *Batch) series(s *atysv1.Series) uint32 {
	for i, have := range b.request.Series {
		if maps.Equal(have.GetLabels(), s.GetLabels()) {
			return uint32(i)
		}
	}
	b.request.Series = append(b.request.Series, s)
	return uint32(len(b.request.Series) - 1)
}

// Len is the number of windows.
func (b *Batch) Len() int { return len(b.request.Windows) }

// Hashes lists the stacks that the batch's windows name.
func (b *Batch) Hashes() []profile.Hash { return b.hashes }

// Request gives what is to be sent. The batch must not be used afterwards.
func (b *Batch) Request() *atysv1.PushRequest {
	b.request.Stacks = Table(b.hashes)
	if len(b.dictionary.message.Nodes) > 0 {
		b.request.Dictionary = b.dictionary.message
	}
	return b.request
}
