package disk

import (
	"encoding/binary"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// Keys, in the order in which they lie. A text is its length and itself; a
// number has its high byte first, so that keys sort as numbers do.
//
//	'b' tenant level                   the day before which all was dropped; of records under level 255
//	'c' as 'w'                         the key of what contains this window (claims.go)
//	'd' tenant service first           calls, numbered from first on (dictionary.go)
//	'e' tenant day service series kind start run sequence    a record (records.go)
//	'l' tenant service first           leaves, numbered from first on
//	'n' tenant place                   its names
//	'p' tenant first                   places, numbered from first on
//	'r' tenant level start             nothing: a step that is to be added up (rollup.go)
//	's' tenant series                  its labels; nothing: the number is free
//	'v'                                the version of all this (database.go)
//	'v' 'r'                            when an earlier version was upgraded to it
//	'w' tenant level day service series start task run [kind]     a window (window.go)
//
// The key of a raw window ends with its kind, unless that is CPU time. Rolled-up windows have
// a hash of their kind as run. Before version 4 no key had a kind.
const (
	spaceDropped = 'b'
	spaceClaims  = 'c'
	spaceCalls   = 'd'
	spaceRecords = 'e'
	spaceLeaves  = 'l'
	spaceNames   = 'n'
	spacePlaces  = 'p'
	spaceStale   = 'r'
	spaceSeries  = 's'
	spaceVersion = 'v'
	spaceWindows = 'w'
)

const day = 24 * time.Hour

type key []byte

func newKey(space byte, tenant string) key { return key{space}.text(tenant) }

func (k key) text(s string) key { return append(binary.AppendUvarint(k, uint64(len(s))), s...) }

func (k key) number(n uint32) key { return binary.BigEndian.AppendUint32(k, n) }

// after is the first key behind all that begin with k.
func (k key) after() key {
	end := append(key(nil), k...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

func levelKey(tenant string, level store.Level) key {
	return append(newKey(spaceWindows, tenant), byte(level))
}

func staleKey(tenant string, s store.Step) key {
	return append(newKey(spaceStale, tenant), byte(s.Level)).start(s.Start)
}

func droppedKey(tenant string, level store.Level) key {
	return append(newKey(spaceDropped, tenant), byte(level))
}

// days counts from 1970 on.
func days(t time.Time) uint32 { return uint32(t.Unix() / int64(day/time.Second)) }

func dayTime(days uint32) time.Time { return time.Unix(int64(days)*int64(day/time.Second), 0).UTC() }

func seriesKey(tenant string, level store.Level, day uint32, service string, series uint32) key {
	return levelKey(tenant, level).number(day).text(service).number(series)
}

func (k key) start(t time.Time) key { return binary.BigEndian.AppendUint64(k, uint64(t.UnixNano())) }

// impliedKind is the kind of raw windows whose key does not name one.
const impliedKind = "cpu"

func windowKey(tenant string, level store.Level, service string, series uint32, start time.Time, task, kind string, run profile.Run) key {
	k := seriesKey(tenant, level, days(start), service, series).start(start).text(task)
	k = append(k, run[:]...)
	if kind != impliedKind && kind != "" && level == store.Raw {
		k = k.text(kind)
	}
	return k
}

// parseStart reads what follows the series in a window's key.
func parseStart(k []byte, prefix int) (f found, ok bool) {
	r := codec.Reader{Data: k[min(prefix, len(k)):]}
	f.start = time.Unix(0, int64(binary.BigEndian.Uint64(r.Bytes(8))))
	f.task = r.Text()
	copy(f.run[:], r.Bytes(len(f.run)))
	if len(r.Data) > 0 {
		if f.kind = r.Text(); f.kind == "" {
			return f, false
		}
	}
	return f, !r.Bad && len(r.Data) == 0
}
