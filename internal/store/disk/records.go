package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// A record's key has its series' number, as a window's has, and all else that identifies it;
// see keys.go. Its value is
//
//	format    number: recordFormat
//	duration  signed, nanoseconds
//	encoding  word
//	version   number, of what is encoded
//	payload   the rest

const recordFormat = 1

// recordLevel stands for records where levels are told apart: in what was dropped, and in
// the evidence of a series.
const recordLevel store.Level = 0xff

// recordTail is the length of a key's start, run and sequence.
const recordTail = 8 + len(profile.Run{}) + 8

// recordsKey is the prefix of a series' records on a day.
func recordsKey(tenant string, day uint32, service string, series uint32) key {
	return newKey(spaceRecords, tenant).number(day).text(service).number(series)
}

func recordKey(tenant string, series uint32, r *profile.Record) key {
	k := recordsKey(tenant, days(r.Start), r.Series[store.ServiceLabel], series).text(r.Kind).start(r.Start)
	return binary.BigEndian.AppendUint64(append(k, r.Run[:]...), r.Sequence)
}

// readRecordTail reads what follows the kind in a record's key.
func readRecordTail(r *codec.Reader, into *profile.Record) {
	if len(r.Data) != recordTail {
		r.Bad, r.Data = true, nil
		return
	}
	into.Start = time.Unix(0, int64(binary.BigEndian.Uint64(r.Bytes(8))))
	copy(into.Run[:], r.Bytes(len(into.Run)))
	into.Sequence = binary.BigEndian.Uint64(r.Bytes(8))
}

func encodeRecord(r *profile.Record) []byte {
	w := make(codec.Writer, 0, len(r.Payload)+16)
	w.Number(recordFormat)
	w.Signed(int64(r.Duration))
	w.Word(r.Encoding)
	w.Number(uint64(r.Version))
	return append(w, r.Payload...)
}

// decodeRecord reads a value into a record, which shares the payload with it.
func decodeRecord(value []byte, into *profile.Record) error {
	r := codec.Reader{Data: value}
	if format := r.Number(); format != recordFormat {
		return errDamaged
	}
	into.Duration, into.Encoding, into.Version = r.Duration(), r.Word(), uint32(r.Small(32))
	if into.Payload = r.Data; r.Bad || into.Check() != nil {
		return errDamaged
	}
	return nil
}

// records is the part of a store that implements store.Records.
type records struct{ store *Store }

// PutRecords stores records; see store.Records.
func (s records) PutRecords(ctx context.Context, tenant string, records []profile.Record) error {
	for i := range records {
		if err := records[i].Check(); err != nil {
			return fmt.Errorf("store records: %w", err)
		}
	}
	if len(records) == 0 {
		return nil
	}
	for {
		if err := s.put(ctx, tenant, records); !errors.Is(err, errTidied) {
			return err
		}
	}
}

func (s records) put(ctx context.Context, tenant string, records []profile.Record) error {
	db, err := s.store.acquire()
	if err != nil {
		return err
	}
	t, err := s.store.tenant(db, tenant)
	if err == nil {
		err = s.store.allow(db, t, store.Raw)
	}
	db.release() // a commit that breaks it has to wait for all who hold it
	if err != nil {
		return err
	}
	c, err := t.encodeRecords(records, s.store.options.Quotas.Of(tenant).Series)
	if err != nil {
		return err
	}
	return s.store.commit(ctx, c)
}

// encodeRecords makes a commit of records, of at most so many series.
func (t *tenant) encodeRecords(records []profile.Record, limit int) (*commit, error) {
	t.encoding.RLock()
	defer t.encoding.RUnlock()
	c := t.newCommit()
	c.sent = true
	var over *store.QuotaError
	for i := range records {
		r := &records[i]
		number, err := t.admit(r.Series, limit)
		var full *store.QuotaError
		if errors.As(err, &full) {
			if over == nil {
				over = &store.QuotaError{What: full.What, Limit: full.Limit, Refused: map[int][]int{}}
			}
			over.Refused[i] = nil
			continue
		} else if err != nil {
			return nil, err
		}
		k, value := recordKey(t.name, number, r), encodeRecord(r)
		c.pairs = append(c.pairs, [2][]byte{k, value})
		c.bytes += len(k) + len(value)
	}
	if over != nil {
		return nil, over
	}
	return c, nil
}

// DropRecords deletes the records of whole days; see store.Records.
func (s records) DropRecords(ctx context.Context, tenant string, before time.Time) error {
	return dropDays(ctx, s.store, tenant, recordLevel, before)
}

// ScanRecords reads records; see store.Records.
func (s records) ScanRecords(ctx context.Context, tenant string, q store.RecordQuery, each func(r *profile.Record) error) error {
	db, t, err := s.store.acquireTenant(tenant)
	if err != nil {
		return err
	}
	defer db.release()
	if q.From.Before(firstStart) {
		q.From = firstStart
	}
	if q.To.After(lastStart) {
		q.To = lastStart
	}
	if !q.From.Before(q.To) {
		return t.damage(0).Err()
	}
	c := &recordCursor{db: db, tenant: t, query: q, each: each}
	err = c.scan(ctx)
	damage := t.damage(c.damaged).Err()
	switch {
	case c.refused != nil && damage != nil:
		return errors.Join(c.refused, damage)
	case c.refused != nil:
		return c.refused
	}
	if c.damaged > 0 {
		s.store.connection.log.Error("records are damaged and left out", "tenant", tenant, "parts", c.damaged, "error", c.problem)
	}
	return cmp.Or(err, damage)
}

// recordCursor reads the records of a tenant.
type recordCursor struct {
	db     *database
	tenant *tenant
	query  store.RecordQuery
	each   func(r *profile.Record) error

	damaged int   // parts that could not be read
	problem error // of the last of them
	refused error // what each returned
}

func (c *recordCursor) lose(err error) {
	c.damaged++
	c.problem = err
}

func (c *recordCursor) scan(ctx context.Context) error {
	list, unsure, err := c.days(days(c.query.From), days(c.query.To.Add(-1)))
	if err != nil {
		return err
	}
	for _, of := range c.tenant.ordered(store.Query{Select: c.query.Select}) {
		days := append(list[of.number], unsure...)
		slices.Sort(days)
		for _, day := range slices.Compact(days) {
			if err := c.day(ctx, of, day); err != nil {
				return err
			}
		}
	}
	return nil
}

// day reads the records of a series on a day.
func (c *recordCursor) day(ctx context.Context, of *series, day uint32) error {
	prefix := recordsKey(c.tenant.name, day, of.service, of.number)
	from := prefix
	if c.query.Kind != "" {
		prefix = prefix.text(c.query.Kind)
		from = append(key(nil), prefix...).start(later(c.query.From, dayTime(day)))
	}
	err := c.db.walkFrom(prefix, from, func(rest, value []byte) error {
		kept := profile.Record{Series: maps.Clone(of.labels), Kind: c.query.Kind}
		r := codec.Reader{Data: rest}
		if kept.Kind == "" {
			kept.Kind = r.Text()
		}
		if readRecordTail(&r, &kept); r.Bad {
			return errDamaged
		}
		if !c.query.Matches(&kept) {
			if c.query.Kind != "" && !kept.Start.Before(c.query.To) {
				return errFound // all that follow start later
			}
			return nil
		}
		if err := cmp.Or(ctx.Err(), decodeRecord(value, &kept)); err != nil {
			return err
		}
		kept.Payload = slices.Clone(kept.Payload)
		if c.refused = c.each(&kept); c.refused != nil {
			return errRefused
		}
		return nil
	}, c.lose)
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}

// errRefused ends a scan whose caller returned an error.
var errRefused = errors.New("the caller ends the scan")

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// days lists on which days from first to last each series has records, by the series' number.
// It seeks once for each of them, and reads no values. On unsure days any series may have some.
func (c *recordCursor) days(first, last uint32) (of map[uint32][]uint32, unsure []uint32, err error) {
	prefix := newKey(spaceRecords, c.tenant.name)
	end := append(key(nil), prefix...).number(last).after()
	of = map[uint32][]uint32{}
	for low := append(key(nil), prefix...).number(first); string(low) < string(end); {
		at, err := c.daysFrom(prefix, low, end, of)
		if err == nil {
			break
		}
		if !isDamage(err) {
			return nil, nil, err
		}
		r := codec.Reader{Data: at[len(prefix):]}
		day := r.Fixed()
		unsure = append(unsure, day)
		low = append(key(nil), prefix...).number(day + 1)
	}
	return of, unsure, nil
}

// daysFrom is days up to the first key that cannot be read. It returns how far it came.
func (c *recordCursor) daysFrom(prefix, low, end key, of map[uint32][]uint32) (key, error) {
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
	if err != nil {
		return low, err
	}
	for it.SeekGE(low) {
		r := codec.Reader{Data: it.Key()[len(prefix):]}
		day, service, number := r.Fixed(), r.Text(), r.Fixed()
		if r.Bad { // what follows is looked for behind it
			low = append(append(key(nil), it.Key()...), 0)
			continue
		}
		if days := of[number]; len(days) == 0 || days[len(days)-1] != day {
			of[number] = append(days, day)
		}
		low = append(key(nil), prefix...).number(day).text(service).number(number).after()
	}
	err = it.Error()
	if closing := it.Close(); err == nil {
		err = closing
	}
	return low, err
}

// exclude removes the series that have records from suspects.
func (c *recordCursor) exclude(suspects map[string]map[uint32]*series) error {
	list, unsure, err := c.days(0, days(lastStart))
	if err != nil {
		return err
	}
	if len(unsure) > 0 {
		return errDamaged
	}
	for _, of := range suspects {
		maps.DeleteFunc(of, func(number uint32, s *series) bool {
			found := list[number]
			if found != nil {
				s.last = evidence{recordLevel, found[len(found)-1]}
			}
			return found != nil
		})
	}
	return nil
}

// check reads all records and reports what is damaged.
func (c *recordCursor) check(ctx context.Context, tell func(problem string)) error {
	return c.db.walk(newKey(spaceRecords, c.tenant.name), func(rest, value []byte) error {
		var kept profile.Record
		r := codec.Reader{Data: rest}
		r.Fixed() // the day
		r.Text()  // the service
		r.Fixed() // the series
		kept.Kind = r.Text()
		if readRecordTail(&r, &kept); r.Bad {
			return errDamaged
		}
		return cmp.Or(ctx.Err(), decodeRecord(value, &kept))
	}, func(err error) { tell(fmt.Sprintf("tenant %q: records: %v", c.tenant.name, err)) })
}
