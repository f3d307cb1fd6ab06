package wire

import (
	"hash/fnv"

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
	targets    map[string]uint32 // of the request's series, by labels
	dictionary *dictionary
}

// Explain finds a stack in a forest.
type Explain func(profile.Hash) (f *profile.Forest, leaf int, ok bool)

// NewBatch begins a batch for a receiver that knows the stacks that known tells.
func NewBatch(known func(profile.Hash) bool) *Batch {
	return &Batch{request: &atysv1.PushRequest{}, known: known, stacks: map[profile.Hash]uint32{}, targets: map[string]uint32{}, dictionary: newDictionary()}
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
	number, unknown := b.number(hashes)
	if len(unknown) > 0 {
		forest, err := Learn(s.GetDictionary())
		if err != nil {
			return err
		}
		if missing := b.explain(unknown, In(forest)); missing > 0 {
			return malformed("%d of a window's stacks are not in its dictionary", missing)
		}
	}
	b.add(s.GetWindow(), s.GetSeries(), number)
	return nil
}

// Join adds the windows of a request that has been checked. Of its stacks those
// are explained that can be; the receiver is thought to know the others.
func (b *Batch) Join(r *atysv1.PushRequest, hashes []profile.Hash, explain Explain) {
	number, unknown := b.number(hashes)
	b.explain(unknown, explain)
	for _, w := range r.GetWindows() {
		added := b.add(w, r.GetSeries()[w.GetSeries()], number)
		for _, p := range added.GetContains() {
			p.Series = b.series(r.GetSeries()[p.GetSeries()])
		}
	}
}

// number gives the places of stacks in the batch's table, and lists those that
// are new to it and to the receiver.
func (b *Batch) number(hashes []profile.Hash) (number []uint32, unknown []profile.Hash) {
	number = make([]uint32, len(hashes))
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
	return number, unknown
}

// explain adds stacks to the dictionary that goes along, and counts those that
// could not be explained.
func (b *Batch) explain(hashes []profile.Hash, explain Explain) (missing int) {
	for _, hash := range hashes {
		if forest, leaf, ok := explain(hash); ok {
			b.dictionary.call(forest, leaf)
		} else {
			missing++
		}
	}
	return missing
}

// In explains what is in a forest.
func In(f *profile.Forest) Explain {
	index := f.Index()
	return func(h profile.Hash) (*profile.Forest, int, bool) {
		leaf, ok := index[h]
		return f, leaf, ok
	}
}

func (b *Batch) add(m *atysv1.Window, series *atysv1.Series, number []uint32) *atysv1.Window {
	w := proto.CloneOf(m)
	for i, stack := range w.GetRows().GetStack() {
		w.Rows.Stack[i] = number[stack]
	}
	for i, peer := range w.GetRows().GetPeer() {
		if peer != 0 {
			w.Rows.Peer[i] = number[peer-1] + 1
		}
	}
	for _, e := range w.GetExemplars() {
		e.Stack = number[e.GetStack()]
	}
	w.Series = b.series(series)
	b.request.Windows = append(b.request.Windows, w)
	return w
}

func (b *Batch) series(s *atysv1.Series) uint32 {
	key := profile.Labels(s.GetLabels()).String()
	n, ok := b.targets[key]
	if !ok {
		n = uint32(len(b.request.Series))
		b.targets[key] = n
		b.request.Series = append(b.request.Series, s)
	}
	return n
}

// Len is the number of windows.
func (b *Batch) Len() int { return len(b.request.Windows) }

// Hashes lists the stacks that the batch's windows name.
func (b *Batch) Hashes() []profile.Hash { return b.hashes }

// Request gives what is to be sent. The batch must not be used afterwards.
func (b *Batch) Request() *atysv1.PushRequest {
	b.request.Stacks = Table(b.hashes)
	for _, w := range b.request.Windows {
		if w.Numbered = 0; refersToStacks(w) {
			w.Numbered = numbering(b.request.Stacks)
		}
	}
	b.request.Dictionary = b.dictionary.bytes()
	return b.request
}

// refersToStacks reports whether a window has numbers of stacks that relays of earlier versions
// do not know.
func refersToStacks(w *atysv1.Window) bool {
	return len(w.GetRows().GetPeer()) > 0 || len(w.GetExemplars()) > 0
}

// numbering identifies a table of stacks.
func numbering(table []byte) uint64 {
	h := fnv.New64a()
	h.Write(table) // never fails
	return h.Sum64()
}

// dropMisnumbered drops peers and exemplars whose stacks an earlier relay has renumbered.
func dropMisnumbered(r *atysv1.PushRequest) {
	for _, w := range r.GetWindows() {
		if refersToStacks(w) && w.GetNumbered() != numbering(r.GetStacks()) {
			if w.Exemplars = nil; w.Rows != nil {
				w.Rows.Peer = nil
			}
			w.Comments = append(w.Comments[:min(len(w.Comments), profile.MaxComments-1)], "peers and exemplars were dropped: a relay of an earlier version passed the window on")
		}
	}
}
