package relay

import (
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// records says what became of the records of a push: kept ones and refused ones are all of
// them, or none were kept.
type records struct {
	kept    uint32
	refused []*atysv1.RefusedRecord
}

// addRecords adds the records of a group that the server has not answered for yet.
func (t *trip) addRecords(b *wire.Batch) {
	t.sent = t.sent[:0]
	for _, p := range t.group {
		if _, answered := t.records[p]; answered {
			continue
		}
		for _, m := range p.request.GetRecords() {
			b.AddRecord(m, p.request.GetSeries()[m.GetSeries()])
			t.sent = append(t.sent, p)
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
	index := map[*push]uint32{} // of the next record in its own request
	for i, p := range t.sent {
		r := of[p]
		if why, is := refused[i]; is {
			r.refused = append(r.refused, &atysv1.RefusedRecord{Record: index[p], Why: why})
		} else {
			r.kept++
		}
		of[p] = r
		index[p]++
	}
	for p, r := range of {
		t.records[p] = r
	}
}
