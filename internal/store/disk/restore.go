package disk

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// What is damaged of a tenant's tables is left out, and all behind it keeps its
// number: rows name stacks by numbers, and stacks places. What is lost is a place
// that is called so, a stack that ends there, or a series that nobody asks for;
// whoever sends one again is asked for it, and gets a number that nothing has. So
// where the end of a table was lost, what names its entries tells how many there
// were.

// restorer reads what the database holds of a tenant.
type restorer struct {
	db     *database
	tenant *tenant
}

func (s *restorer) restore() error {
	for _, restore := range []func() error{s.places, s.names, s.series, s.steps, s.limits, s.claims} {
		if err := restore(); err != nil {
			return err
		}
	}
	return nil
}

func (s *restorer) places() error {
	p := s.tenant.places
	var err error
	p.tail, err = s.db.table(newKey(spacePlaces, s.tenant.name), table{p.size, p.lose, func(value []byte) bool {
		r := codec.Reader{Data: value}
		var more []profile.Place
		for len(r.Data) > 0 && !r.Bad {
			l := r.Location()
			more = append(more, profile.Place{Hash: l.Hash(), Location: l})
		}
		if r.Bad {
			return false
		}
		for _, place := range more {
			p.index[place.Hash] = uint32(len(p.list))
			p.list = append(p.list, place)
		}
		return true
	}}, s.tenant.lost("places"))
	if err == nil && p.tail.lost {
		var most int64
		if most, err = s.placesNamed(); err == nil {
			p.lose(uint32(min(most, int64(len(p.list))+mostLost)))
		}
	}
	p.saved = len(p.list)
	return err
}

// placesNamed is how many places there must be for all calls of a tenant.
func (s *restorer) placesNamed() (most int64, err error) {
	err = s.db.walk(newKey(spaceCalls, s.tenant.name), func(rest, value []byte) error {
		at := codec.Reader{Data: rest[max(len(rest)-4, 0):]}
		first := at.Fixed()
		if first == nobody { // a note of a tail
			return nil
		}
		calls, ok := decodeCalls(value, int(first))
		if !ok {
			return errDamaged
		}
		for _, c := range calls {
			if c.caller != nobody {
				most = max(most, int64(c.place)+1)
			}
		}
		return nil
	}, leftOut)
	return most, err
}

// lose has places be there, up to a size, that were lost.
func (p *places) lose(size uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for number := len(p.list); number < int(size); number++ {
		p.list = append(p.list, profile.Place{Hash: lostHash(uint64(number)), Location: profile.Location{Name: lostName, Line: number},
			Names: []profile.Frame{{Function: lostName}}})
	}
}

// lostName is what a place is called that was lost.
const lostName = "[damaged]"

// lostHash is one that no place or stack has.
func lostHash(n uint64) (h profile.Hash) {
	binary.LittleEndian.PutUint64(h[:], n*0x9e3779b97f4a7c15)
	copy(h[8:], "is lost.")
	return h
}

func (s *restorer) names() error {
	p, prefix, whole := s.tenant.places, newKey(spaceNames, s.tenant.name), true
	err := s.db.walk(prefix, func(rest, value []byte) error {
		at, r := codec.Reader{Data: rest}, codec.Reader{Data: value}
		number, frames := at.Fixed(), r.Frames()
		if len(rest) != 4 || r.Bad || len(r.Data) > 0 || int64(number) >= int64(len(p.list)) {
			return errDamaged
		}
		p.list[number].Names = frames
		return nil
	}, func(err error) {
		whole = false
		s.tenant.lost("names")(err)
	})
	if err != nil || whole {
		return err
	}
	for number := range p.list { // names that came since are newer than the damage, and hidden from walks by it
		if err := s.namesOf(prefix, p, uint32(number)); err != nil {
			return err
		}
	}
	return nil
}

// namesOf reads the names of one place, if they are there and not damaged.
func (s *restorer) namesOf(prefix key, p *places, number uint32) error {
	value, err := s.db.value(append(key(nil), prefix...).number(number))
	if r := (codec.Reader{Data: value}); err == nil && value != nil {
		if frames := r.Frames(); !r.Bad && len(r.Data) == 0 {
			p.list[number].Names = frames
		}
	}
	return err
}

func (s *restorer) series() error {
	var err error
	s.tenant.tail, err = s.db.table(newKey(spaceSeries, s.tenant.name), table{func() int { return len(s.tenant.series) }, s.tenant.loseSeries, func(value []byte) bool {
		if len(value) == 0 { // it is gone
			s.tenant.free = append(s.tenant.free, uint32(len(s.tenant.series)))
			s.tenant.loseSeries(uint32(len(s.tenant.series)) + 1)
			return true
		}
		r := codec.Reader{Data: value}
		labels := r.Labels()
		if r.Bad || len(r.Data) > 0 {
			return false
		}
		s.tenant.restored(s.tenant.appendSeries(labels))
		return true
	}}, s.tenant.lost("series"))
	if err == nil && s.tenant.tail.lost {
		var most int64
		if most, err = s.seriesNamed(); err == nil {
			s.tenant.loseSeries(uint32(min(most, int64(len(s.tenant.series))+mostLost)))
		}
	}
	s.tenant.saved = len(s.tenant.series)
	return err
}

// seriesNamed is how many series there must be for all windows and records of a tenant,
// and for windows that others contain.
func (s *restorer) seriesNamed() (most int64, err error) {
	for _, prefix := range append(s.tenant.windowSpaces(), newKey(spaceRecords, s.tenant.name)) {
		err := s.db.walk(prefix, func(rest, _ []byte) error {
			r := codec.Reader{Data: rest}
			r.Fixed() // the day
			r.Text()
			if number := r.Fixed(); !r.Bad {
				most = max(most, int64(number)+1)
			}
			return nil
		}, leftOut)
		if err != nil {
			return 0, err
		}
	}
	return most, nil
}

// windowSpaces are where keys of windows lie: their own, and those of claims.
func (t *tenant) windowSpaces() (all []key) {
	for _, level := range levels {
		prefix := levelKey(t.name, level)
		all = append(all, prefix, claimKey(prefix))
	}
	return all
}

// levels are all that windows lie in.
var levels = append([]store.Level{store.Raw}, store.RolledUp()...)

// steps reads which steps are stale. Where that cannot be told all are of
// the days that there are windows of: a question that takes one for whole would
// leave out what came late.
func (s *restorer) steps() error {
	unknown := false
	err := s.db.walk(newKey(spaceStale, s.tenant.name), func(rest, _ []byte) error {
		if len(rest) != 9 || rest[0] > byte(store.Service1d) {
			return errDamaged
		}
		start := time.Unix(0, int64(binary.BigEndian.Uint64(rest[1:]))).UTC()
		s.tenant.stale[store.Step{Level: store.Level(rest[0]), Start: start}] = true
		return nil
	}, func(err error) {
		unknown = true
		s.tenant.lost("steps to be added up")(err)
	})
	if err != nil || !unknown {
		return err
	}
	list, _, err := s.db.daysOf(s.tenant, store.Raw)
	for _, n := range list {
		for at := dayTime(n); at.Before(dayTime(n + 1)); at = at.Add(time.Minute) {
			for _, step := range store.Steps(at) {
				if _, ok := s.tenant.stale[step]; !ok {
					s.tenant.stale[step] = false
				}
			}
		}
	}
	return err
}

// limits reads what was dropped. Where that is damaged answers do not tell
// of it until more is.
func (s *restorer) limits() error {
	for _, level := range append(slices.Clone(levels), recordLevel) {
		value, closer, err := s.db.Get(droppedKey(s.tenant.name, level))
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err == nil {
			if len(value) == 4 {
				s.tenant.dropped[level] = binary.BigEndian.Uint32(value)
			} else {
				s.tenant.lost("limits")(errDamaged)
			}
			err = closer.Close()
		}
		if isDamage(err) {
			s.tenant.lost("limits")(err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// dictionary reads the stacks of a service.
func (s *restorer) dictionary(service string) (*dictionary, error) {
	dictionary := &dictionary{service: service}
	lost := func(what string) func(error) {
		return func(err error) { dictionary.problems.add(what, err) }
	}
	var calls []call
	pad := func(size uint32) {
		for len(calls) < int(size) {
			calls = append(calls, lostCall(len(calls)))
		}
	}
	prefix := newKey(spaceCalls, s.tenant.name).text(service)
	var err error
	dictionary.tail, err = s.db.table(prefix, table{func() int { return len(calls) }, pad, func(value []byte) bool {
		more, ok := decodeCalls(value, len(calls))
		if ok {
			calls = append(calls, more...)
		}
		return ok
	}}, lost("calls"))
	if err != nil {
		return nil, err
	}
	leaves, end, err := s.leaves(service, lost("stacks"))
	if err != nil {
		return nil, err
	}
	for i, number := range leaves {
		switch lack := int64(number) - int64(len(calls)) + 1; {
		case number == nobody || lack <= 0:
		case lack > mostLost:
			leaves[i] = nobody
		default: // those were at the end, where nothing else tells of them
			pad(number + 1)
		}
	}
	dictionary.leavesTail = end
	dictionary.restore(s.tenant.places, calls, leaves)
	return dictionary, nil
}

// leaves reads the calls that samples end at; nobody where that is lost.
func (s *restorer) leaves(service string, lost func(error)) (leaves []uint32, end tail, err error) {
	pad := func(size uint32) {
		for len(leaves) < int(size) {
			leaves = append(leaves, nobody)
		}
	}
	prefix := newKey(spaceLeaves, s.tenant.name).text(service)
	end, err = s.db.table(prefix, table{func() int { return len(leaves) }, pad, func(value []byte) bool {
		more, ok := decodeLeaves(value)
		if ok {
			leaves = append(leaves, more...)
		}
		return ok
	}}, lost)
	if err == nil && end.lost {
		var most int64
		if most, err = s.leavesNamed(service); err == nil {
			pad(uint32(min(most, int64(len(leaves))+mostLost)))
		}
	}
	return leaves, end, err
}

// leavesNamed is how many leaves there must be for all windows of a service. It
// reads them all.
func (s *restorer) leavesNamed(service string) (most int64, err error) {
	for _, level := range levels {
		list, _, err := s.db.daysOf(s.tenant, level)
		if err != nil {
			return 0, err
		}
		for _, n := range list {
			err := s.db.walk(levelKey(s.tenant.name, level).number(n).text(service), func(_, value []byte) error {
				w, ok := codec.DecodeWindow(value)
				if !ok {
					return errDamaged
				}
				for _, leaf := range w.Rows.Stack {
					most = max(most, int64(leaf)+1)
				}
				return nil
			}, leftOut)
			if err != nil {
				return 0, err
			}
		}
	}
	return most, nil
}

// appendSeries adds a series under the next number. The tenant is locked, or
// nobody has it yet.
func (t *tenant) appendSeries(labels profile.Labels) uint32 {
	number := uint32(len(t.series))
	t.series = append(t.series, nil)
	t.setSeries(number, labels)
	return number
}

// setSeries gives a number to a series.
func (t *tenant) setSeries(number uint32, labels profile.Labels) {
	t.numbers[keptLabels(labels)] = number
	t.series[number] = &series{number: number, labels: maps.Clone(labels), written: labels.String(), service: labels[store.ServiceLabel], group: store.Group(labels)}
}

// loseSeries has series be there, up to a size, that were lost.
func (t *tenant) loseSeries(size uint32) {
	for len(t.series) < int(size) {
		t.series = append(t.series, nil)
	}
}

// lost gives who notes what of a tenant is lost.
func (t *tenant) lost(what string) func(error) {
	return func(err error) { t.problems.add(what, err) }
}
