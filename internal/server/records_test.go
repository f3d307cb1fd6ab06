package server

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent/journal"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/testwait"
)

// recordsAt is a request with a record for each time.
func recordsAt(times ...time.Time) *atysv1.PushRequest {
	b := wire.NewBatch(nil)
	for i, at := range times {
		s := wire.SealRecord(&profile.Record{Series: profile.Labels{"service": "shop"}, Kind: "decision", Start: at, Sequence: uint64(i), Payload: []byte("{}")})
		b.AddRecord(s.GetRecord(), s.GetSeries())
	}
	return b.Request()
}

// listRecords asks for records.
func listRecords(t *testing.T, s *Server, r *atysv1.RecordsRequest) *atysv1.RecordsResponse {
	t.Helper()
	if m, ok := s.options.Store.(*mem.Store); ok {
		m.Settle()
	}
	response, err := s.Records(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func ofKind(kind string) *atysv1.Selection {
	return &atysv1.Selection{Kind: kind, FromUnixNano: noon.Add(-240 * time.Hour).UnixNano(), ToUnixNano: noon.Add(24 * time.Hour).UnixNano()}
}

// TestRecords pushes records with windows and alone, twice, and lists them.
func TestRecords(t *testing.T) {
	s, err := New(Options{Store: mem.New(1), Retention: upkeep.Retention{store.Raw: 48 * time.Hour}, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r := recordsAt(noon, noon.Add(-time.Hour), noon.Add(-72*time.Hour), noon.Add(24*time.Hour))
		answer, err := s.Push(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		refused, kept := wire.RefusedRecords(answer, 4)
		if !kept || len(refused) != 2 || refused[2] == "" || refused[3] == "" {
			t.Errorf("%v: %v, %t", answer, refused, kept)
		}
	}
	with, _ := request(t, false, "shop", noon)
	alone := recordsAt(noon.Add(time.Second))
	with.Records, alone.Records[0].Series = alone.Records, uint32(len(with.Series)-1)
	if answer, err := s.Push(t.Context(), with); err != nil || answer.GetKeptRecords() != 1 {
		t.Errorf("with a window: %v, %v", answer, err)
	}
	all := listRecords(t, s, &atysv1.RecordsRequest{Selection: ofKind("decision")})
	if len(all.GetRecords()) != 3 || all.GetMore() || string(all.GetRecords()[0].GetPayload()) != "{}" {
		t.Errorf("listed: %v", all)
	}
	if some := listRecords(t, s, &atysv1.RecordsRequest{Selection: ofKind("decision"), Limit: 2}); len(some.GetRecords()) != 2 || !some.GetMore() {
		t.Errorf("listed of two: %v", some)
	}
	none := ofKind("decision")
	none.Select = `{service="bank"}`
	if some := listRecords(t, s, &atysv1.RecordsRequest{Selection: none}); len(some.GetRecords()) != 0 {
		t.Errorf("listed of another service: %v", some)
	}
	for name, wrong := range map[string]*atysv1.Selection{"no kind": ofKind(""), "no time": {Kind: "decision"}, "a task": {Kind: "decision", Task: "t", ToUnixNano: 1}} {
		if _, err := s.Records(t.Context(), &atysv1.RecordsRequest{Selection: wrong}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecordsQuota refuses records of series that there is no room for, and keeps the others.
func TestRecordsQuota(t *testing.T) {
	kept := mem.New(1)
	kept.Quotas = func(string) store.Quota { return store.Quota{Series: 1} }
	s, err := New(Options{Store: kept, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	r := recordsAt(noon, noon)
	r.Series = append(r.Series, &atysv1.Series{Labels: map[string]string{"service": "bank"}})
	r.Records[0].Series = 1
	answer, err := s.Push(t.Context(), r)
	if err != nil || answer.GetKeptRecords() != 1 || len(answer.GetRefusedRecords()) != 1 {
		t.Errorf("%v, %v", answer, err)
	}
}

// withoutRecords is a store of an engine that keeps none.
type withoutRecords struct{ store.Store }

// TestRecordsOfStoreWithout acknowledges no record that is not kept.
func TestRecordsOfStoreWithout(t *testing.T) {
	s, err := New(Options{Store: withoutRecords{mem.New(1)}, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.Push(t.Context(), recordsAt(noon))
	if _, kept := wire.RefusedRecords(answer, 1); err != nil || kept {
		t.Errorf("%v, %v", answer, err)
	}
	if _, err := s.Records(t.Context(), &atysv1.RecordsRequest{Selection: ofKind("decision")}); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("listed: %v", err)
	}
}

// unwritable is a store that cannot write records.
type unwritable struct{ *mem.Store }

func (unwritable) PutRecords(context.Context, string, []profile.Record) error { return store.ErrFull }

// TestRecordsOnFullDisk acknowledges nothing until it is stored.
func TestRecordsOnFullDisk(t *testing.T) {
	s, err := New(Options{Store: unwritable{mem.New(1)}, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := s.Push(t.Context(), recordsAt(noon)); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestMalformedRecord has a journal ship a malformed record among others, over HTTP: in one
// request the server refuses it alone, and the journal counts it and is done.
func TestMalformedRecord(t *testing.T) {
	admission, as := admitted(t)
	s, err := New(Options{Store: mem.New(1), Admission: admission, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	client := atysv1connect.NewIntakeClient(as(h, "default/agent"), h.URL)
	waiting, err := spool.Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	var entries [][]byte
	for i := range uint64(3) {
		one := wire.SealRecord(&profile.Record{Series: profile.Labels{"service": "shop"}, Kind: "decision", Start: noon, Sequence: i, Payload: []byte("{}")})
		if i == 1 {
			one.Record.Run = nil
		}
		data, err := proto.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, data)
	}
	if _, err := waiting.Add(entries); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	requests := 0
	shipper := journal.New(journal.Options{Spool: waiting, Log: slog.New(slog.NewTextHandler(&logged, nil)), Push: func(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
		requests++
		return client.Push(ctx, r)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { shipper.Run(ctx) })
	testwait.Until(t, "all to be settled", func() bool { return waiting.Stats().Records == 0 })
	cancel()
	running.Wait()
	if lost := waiting.Stats().Losses; lost != (spool.Losses{Refused: 1}) || requests != 1 {
		t.Errorf("lost %+v after %d requests", lost, requests)
	}
	if !strings.Contains(logged.String(), "kind=decision") || !strings.Contains(logged.String(), "a run of 0 bytes") {
		t.Errorf("the log says %s", logged.String())
	}
	if all := listRecords(t, s, &atysv1.RecordsRequest{Selection: ofKind("decision")}); len(all.GetRecords()) != 2 {
		t.Errorf("kept are %v", all)
	}
}

// TestMalformedRecordBesideWindow keeps the window of a request, whose record is refused for
// its labels.
func TestMalformedRecordBesideWindow(t *testing.T) {
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := request(t, false, "shop", noon)
	r.Records = recordsAt(noon).Records
	r.Records[0].Series = uint32(len(r.Series))
	r.Series = append(r.Series, &atysv1.Series{Labels: map[string]string{"": "nameless"}})
	answer, err := s.Push(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	refused, all := wire.RefusedRecords(answer, 1)
	if windows, _ := held(t, kept); !all || len(refused) != 1 || windows != 1 {
		t.Errorf("%v, %d windows are kept", answer, windows)
	}
}
