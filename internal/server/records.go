package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire/atysv1"
)

// keepRecords stores the records of a request but for those that are wrong, and says in the
// response which. If the store keeps no records, the response does not mention them, and
// senders keep them.
func (s *intake) keepRecords(ctx context.Context, all []profile.Record, wrong map[int]error, response *atysv1.PushResponse) error {
	records, ok := s.store.(store.Records)
	if !ok || len(all) == 0 {
		return nil
	}
	places := indices(len(all))
	refuse := func(why map[int]error) {
		var left []profile.Record
		var leftPlaces []int
		for i := range all {
			if err := why[i]; err != nil {
				response.RefusedRecords = append(response.RefusedRecords, &atysv1.RefusedRecord{Record: uint32(places[i]), Why: err.Error()})
				continue
			}
			left, leftPlaces = append(left, all[i]), append(leftPlaces, places[i])
		}
		all, places = left, leftPlaces
	}
	refuse(wrong)
	refuse(s.wrongRecordTimes(all))
	for len(all) > 0 {
		err := records.PutRecords(ctx, s.tenants.name(ctx), all)
		var quota *store.QuotaError
		if err == nil {
			break
		} else if !errors.As(err, &quota) || len(quota.Refused) == 0 {
			return err
		}
		why := map[int]error{}
		for i := range quota.Refused {
			why[i] = quota
		}
		refuse(why)
	}
	response.KeptRecords = uint32(len(all))
	return nil
}

// wrongRecordTimes returns why records are refused that start too early or too late. They are
// kept as long as raw windows.
func (s *intake) wrongRecordTimes(all []profile.Record) map[int]error {
	now, oldest := s.now(), time.Time{}
	if keep := s.retention[store.Raw]; keep > 0 {
		oldest = now.Add(-keep)
	}
	wrong := map[int]error{}
	for i := range all {
		switch start := all[i].Start; {
		case start.After(now.Add(mostAhead)):
			wrong[i] = fmt.Errorf("it begins at %v, more than %v ahead of this server's clock: one of the clocks is wrong", start.UTC(), mostAhead)
		case start.Before(oldest):
			wrong[i] = fmt.Errorf("it begins at %v, and records are kept from %v on (--retention of raw windows)", start.UTC(), oldest.UTC())
		}
	}
	return wrong
}

// Bounds of an answer with records.
const (
	usualRecords     = 1000
	mostRecords      = 10_000
	mostRecordsBytes = 8 << 20
)

// errEnough ends a scan.
var errEnough = errors.New("the answer is full")

// Records lists records; see the service Query.
func (s *queries) Records(ctx context.Context, r *atysv1.RecordsRequest) (*atysv1.RecordsResponse, error) {
	about, err := ofAllContexts(selectionOfAny(r.GetSelection()))
	if err != nil {
		return nil, err
	}
	records, ok := s.store.(store.Records)
	switch {
	case len(about.Kinds) != 1:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the selection has %d kinds of records: name one, such as %s", len(about.Kinds), freq.RecordKind))
	case about.Task != "":
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("records are not selected by task: leave it empty"))
	case !ok:
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this server's store keeps no records"))
	}
	limit := min(int(r.GetLimit()), mostRecords)
	if limit == 0 {
		limit = usualRecords
	}
	response, bytes := &atysv1.RecordsResponse{}, 0
	q := store.RecordQuery{Kind: about.Kinds[0], Select: about.Select, From: about.From, To: about.To}
	err = records.ScanRecords(ctx, s.tenants.name(ctx), q, func(one *profile.Record) error {
		if bytes += len(one.Payload); len(response.Records) == limit || bytes > mostRecordsBytes {
			response.More = true
			return errEnough
		}
		response.Records = append(response.Records, &atysv1.KeptRecord{Labels: one.Series, Kind: one.Kind, StartUnixNano: one.Start.UnixNano(), DurationNs: int64(one.Duration),
			Run: one.Run[:], Sequence: one.Sequence, Encoding: one.Encoding, Version: one.Version, Payload: one.Payload})
		return nil
	})
	var damaged *store.DamagedError
	if errors.As(err, &damaged) {
		response.Damaged = uint32(damaged.Count())
	} else if err != nil && !errors.Is(err, errEnough) {
		return nil, s.unread(err)
	}
	return response, nil
}
