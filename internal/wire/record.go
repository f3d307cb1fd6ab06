package wire

import (
	"fmt"
	"math"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// SealRecord encodes a record to be spooled and sent.
func SealRecord(r *profile.Record) *atysv1.Spooled {
	return &atysv1.Spooled{Series: sealSeries(r.Series), Record: &atysv1.Record{Kind: FitLabel(r.Kind), StartUnixNano: r.Start.UnixNano(), DurationNs: int64(r.Duration),
		Run: r.Run[:], Sequence: r.Sequence, Encoding: FitLabel(r.Encoding), Version: r.Version, Payload: r.Payload}}
}

// OpenRecord is the inverse of SealRecord. The record shares its labels and its payload with
// the message.
func OpenRecord(m *atysv1.Record, series *atysv1.Series) (r profile.Record, err error) {
	if m == nil {
		return r, malformed("there is no record")
	}
	if len(m.GetRun()) != len(r.Run) {
		return r, malformed("a run of %d bytes", len(m.GetRun()))
	}
	if m.GetStartUnixNano() < 0 || m.GetDurationNs() > math.MaxInt64-m.GetStartUnixNano() {
		return r, malformed("a record of %d ns from %d on", m.GetDurationNs(), m.GetStartUnixNano())
	}
	r = profile.Record{Series: series.GetLabels(), Kind: m.GetKind(), Start: time.Unix(0, m.GetStartUnixNano()), Duration: time.Duration(m.GetDurationNs()),
		Run: profile.Run(m.GetRun()), Sequence: m.GetSequence(), Encoding: m.GetEncoding(), Version: m.GetVersion(), Payload: m.GetPayload()}
	if err := r.Check(); err != nil {
		return r, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, CheckLabels(r.Series)
}

// Records reads the records of a request. Those that are malformed are to be refused one by
// one: wrong has the reason of each by its index, and all has a zero record in its place. An
// error is of the whole request. Both will be the same if the request is sent again.
func Records(r *atysv1.PushRequest) (all []profile.Record, wrong map[int]error, err error) {
	if n := len(r.GetRecords()); n > MaxWindows {
		return nil, nil, fmt.Errorf("%d records in one request: at most %d are allowed", n, MaxWindows)
	}
	all, wrong = make([]profile.Record, len(r.GetRecords())), map[int]error{}
	for i, m := range r.GetRecords() {
		if int64(m.GetSeries()) >= int64(len(r.GetSeries())) {
			wrong[i] = malformed("series %d of %d", m.GetSeries(), len(r.GetSeries()))
		} else if one, err := OpenRecord(m, r.GetSeries()[m.GetSeries()]); err != nil {
			wrong[i] = err
		} else {
			all[i] = one
		}
	}
	return all, wrong, nil
}

// AddRecord adds a record. The message may be added to another batch.
func (b *Batch) AddRecord(m *atysv1.Record, series *atysv1.Series) {
	b.request.Records = append(b.request.Records, &atysv1.Record{Series: b.series(series), Kind: m.GetKind(), StartUnixNano: m.GetStartUnixNano(), DurationNs: m.GetDurationNs(),
		Run: m.GetRun(), Sequence: m.GetSequence(), Encoding: m.GetEncoding(), Version: m.GetVersion(), Payload: m.GetPayload()})
}

// RefusedRecords returns which of the records that were sent a receiver refuses, and why. It
// is false if the receiver did not keep the others: an older receiver drops records without
// a word, so the sender still has to keep them all.
func RefusedRecords(r *atysv1.PushResponse, sent int) (refused map[int]string, kept bool) {
	refused = map[int]string{}
	for _, one := range r.GetRefusedRecords() {
		if int64(one.GetRecord()) < int64(sent) {
			refused[int(one.GetRecord())] = one.GetWhy()
		}
	}
	return refused, len(r.GetUnknown())+len(r.GetOverlaps()) == 0 && int64(r.GetKeptRecords())+int64(len(refused)) == int64(sent)
}
