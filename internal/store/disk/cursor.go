package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// cursor reads the windows that a query chooses, of one series after another.
type cursor struct {
	logger *slog.Logger
	db     *database
	tenant *tenant
	query  store.Query
	it     *pebble.Iterator // of the level; nil: not opened yet

	damaged  int                                         // windows, or stretches of a series, that could not be read
	reported func(of *series, from time.Time, err error) // is told of each; nil: the log is
	refused  error                                       // of whom windows were given to
}

// found is a window as it lies in the database. Its bytes are not to be kept.
type found struct {
	data  []byte
	start time.Time
	task  string
	kind  string // if the key names it
	run   profile.Run
}

// Windows begin after 1970, and before their nanoseconds no longer fit a key.
var firstStart, lastStart = time.Unix(0, 0), time.Unix(0, 1<<63-1)

// newCursor reads the windows of a tenant that a query chooses.
func newCursor(log *slog.Logger, db *database, t *tenant, q store.Query) *cursor {
	if q.From.Before(firstStart) {
		q.From = firstStart
	}
	if q.To.After(lastStart) {
		q.To = lastStart
	}
	return &cursor{logger: log, db: db, tenant: t, query: q}
}

func (c *cursor) close() error {
	if c.it == nil {
		return nil
	}
	err := c.it.Close()
	c.it = nil
	if pebble.IsCorruptionError(err) { // it was met, and reported, where it was read
		c.damaged = max(c.damaged, 1)
		return nil
	}
	return err
}

// seek finds the first key from low on.
func (c *cursor) seek(low key) (valid bool, err error) {
	if c.it == nil {
		level := levelKey(c.tenant.name, c.query.Level)
		if c.it, err = c.db.NewIter(&pebble.IterOptions{LowerBound: level, UpperBound: level.after()}); err != nil {
			return false, err
		}
	}
	valid = c.it.SeekGE(low)
	return valid, c.it.Error()
}

// skip says whether an error is one of what lies there, and not of reading. The
// next seek begins anew.
func (c *cursor) skip(err error) bool {
	if !pebble.IsCorruptionError(err) {
		return false
	}
	_ = c.close() // its error is the one that is known
	return true
}

// days lists the days that there are windows of. Of those that begin in one
// stretch of damage the last alone may go on behind it.
func (c *cursor) days() (list []uint32, err error) {
	if !c.query.From.Before(c.query.To) {
		return nil, nil
	}
	level := levelKey(c.tenant.name, c.query.Level)
	last, inDamage := days(c.query.To.Add(-1)), false
	for d := days(c.query.From); d <= last; d++ {
		valid, err := c.seek(append(key(nil), level...).number(d))
		switch {
		case err != nil && !c.skip(err):
			return nil, err
		case err != nil && inDamage:
			list = list[:len(list)-1]
		case err == nil && !valid:
			return list, nil
		case err == nil:
			if d = binary.BigEndian.Uint32(c.it.Key()[len(level):]); d > last {
				return list, nil
			}
		}
		inDamage = err != nil
		list = append(list, d)
	}
	return list, nil
}

// daysOf lists all days that a tenant has windows of at a level, and how many windows could
// not be read.
func (d *database) daysOf(t *tenant, level store.Level) (list []uint32, damaged int, err error) {
	c := &cursor{db: d, tenant: t, query: store.Query{Level: level, From: firstStart, To: lastStart}}
	list, err = c.days()
	if closing := c.close(); err == nil {
		err = closing
	}
	return list, c.damaged, err
}

// each gives the windows of series one after another.
func (c *cursor) each(ctx context.Context, all []*series, give func(of *series, f *found) error) error {
	days, err := c.days()
	if err != nil {
		return err
	}
	for _, of := range all {
		if err := c.series(ctx, days, of, func(f *found) error { return give(of, f) }); err != nil {
			return err
		}
	}
	return nil
}

// series gives the windows of a series on some days, by time.
func (c *cursor) series(ctx context.Context, days []uint32, of *series, give func(*found) error) error {
	for _, d := range days {
		if err := ctx.Err(); err != nil {
			return err
		}
		prefix := seriesKey(c.tenant.name, c.query.Level, d, of.service, of.number)
		midnight := time.Unix(int64(d)*int64(day/time.Second), 0)
		from, to := c.query.From, c.query.To
		if from.Before(midnight) {
			from = midnight
		}
		if tomorrow := midnight.Add(day); to.After(tomorrow) {
			to = tomorrow
		}
		for from.Before(to) {
			next, err := c.stretch(of, prefix, from, to, give)
			if err != nil {
				if c.refused != nil || !c.skip(err) {
					return err
				}
				// What lies there is lost; what begins an hour later lies elsewhere.
				next = next.Truncate(time.Hour).Add(time.Hour)
				c.report(of, from, err)
			}
			from = next
		}
	}
	return nil
}

// stretch gives the windows of a series that begin in [from, to). It gives how
// far it came: all of it, if there is no error.
func (c *cursor) stretch(of *series, prefix key, from, to time.Time, give func(*found) error) (time.Time, error) {
	end := append(key(nil), prefix...).start(to)
	at := from
	c.refused = nil // of the series before, where one window was enough
	valid, err := c.seek(append(key(nil), prefix...).start(from))
	for ; valid && err == nil && bytes.Compare(c.it.Key(), end) < 0; valid, err = c.it.Next(), c.it.Error() {
		f, ok := parseStart(c.it.Key(), len(prefix))
		if !ok {
			c.report(of, at, errDamaged)
			continue
		}
		at = f.start
		if !store.TaskMatches(c.query.Task, f.task) {
			continue
		}
		if f.data, err = c.it.ValueAndErr(); err != nil {
			break
		}
		if c.refused = give(&f); c.refused != nil {
			return at, c.refused
		}
	}
	if err != nil {
		return at, err
	}
	return to, nil
}

// quietly reads what is read again later, and reports damage then.
func (c *cursor) quietly(read func() error) error {
	damaged, reported := c.damaged, c.reported
	c.reported = func(*series, time.Time, error) {}
	defer func() { c.damaged, c.reported = damaged, reported }()
	return read()
}

// report says that something of a series could not be read.
func (c *cursor) report(of *series, at time.Time, err error) {
	c.damaged++
	if c.reported != nil {
		c.reported(of, at, err)
		return
	}
	c.log(of, at, err)
}

func (c *cursor) log(of *series, at time.Time, err error) {
	c.logger.Error("windows are damaged and left out", "tenant", c.tenant.name, "series", of.written, "from", at, "error", err)
}
