package relay

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// records says what became of the records of a push: kept ones and refused ones are all of
// them, or none were kept.
type records struct {
	kept    uint32
	refused []*atysv1.RefusedRecord
}

// sentRecord is a record on its way to the server.
type sentRecord struct {
	push  *push
	index int // in the push
}

// all reports whether they are all records of a push: its sender does not send them again.
func (r *records) all(push *atysv1.PushRequest) bool {
	return int64(r.kept)+int64(len(r.refused)) == int64(len(push.GetRecords()))
}

func (r *records) refuse(index int, why string) {
	r.refused = append(r.refused, &atysv1.RefusedRecord{Record: uint32(index), Why: why})
}

// addRecords adds the records of a group that the server has not answered for yet, but for
// malformed ones.
func (t *trip) addRecords(b *wire.Batch) {
	t.sent = t.sent[:0]
	for _, p := range t.group {
		if _, answered := t.records[p]; answered {
			continue
		}
		for i, m := range p.request.GetRecords() {
			if p.wrong[i] == nil {
				b.AddRecord(m, p.request.GetSeries()[m.GetSeries()])
				t.sent = append(t.sent, sentRecord{p, i})
			}
		}
	}
}

// noteRecords notes which records the server kept. A server that does not keep records, or
// that kept nothing of the request, has not answered for them: their senders keep them.
func (t *trip) noteRecords(response *atysv1.PushResponse) {
	refused, kept := wire.RefusedRecords(response, len(t.sent))
	if !kept {
		return
	}
	of := map[*push]records{}
	for i, from := range t.sent {
		r := of[from.push]
		if why, is := refused[i]; is {
			r.refuse(from.index, why)
		} else {
			r.kept++
		}
		of[from.push] = r
	}
	maps.Copy(t.records, of)
}

// recordsOf says what became of the records of a push, malformed ones included.
func (t *trip) recordsOf(p *push) records {
	r := t.records[p]
	for _, i := range slices.Sorted(maps.Keys(p.wrong)) {
		r.refuse(i, p.wrong[i].Error())
	}
	return r
}

// warnEvery is how often malformed records are logged. All are counted.
const warnEvery = 10 * time.Second

// noteMalformed counts and logs the malformed records of a push, once their sender has been told
// what became of all its records: otherwise it sends them again.
func (r *Relay) noteMalformed(p *push, told *records) {
	if len(p.wrong) == 0 || !told.all(p.request) {
		return
	}
	r.metrics.records.Add(float64(len(p.wrong)))
	now := r.options.Now()
	r.mu.Lock()
	since := now.Sub(r.warned)
	quiet := since >= 0 && since < warnEvery
	if !quiet {
		r.warned = now
	}
	r.mu.Unlock()
	if !quiet {
		first := slices.Min(slices.Collect(maps.Keys(p.wrong)))
		kind := p.request.GetRecords()[first].GetKind()
		r.log.Warn("malformed records were refused", "records", len(p.wrong), "kind", profile.Excerpt([]byte(kind)), "error", p.wrong[first])
	}
}
