package wire

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

func decision(sequence uint64) *profile.Record {
	return &profile.Record{Series: profile.Labels{"service": "shop", "node": "n1"}, Kind: "rate-decision", Start: time.Unix(1_790_000_000, 5), Duration: 10 * time.Second,
		Run: profile.Run{1}, Sequence: sequence, Encoding: profile.EncodingJSON, Version: 1, Payload: []byte(`{"hertz":99}`)}
}

func sameRecord(a, b *profile.Record) bool {
	return maps.Equal(a.Series, b.Series) && a.Kind == b.Kind && a.Start.Equal(b.Start) && a.Duration == b.Duration && a.Run == b.Run &&
		a.Sequence == b.Sequence && a.Encoding == b.Encoding && a.Version == b.Version && bytes.Equal(a.Payload, b.Payload)
}

// TestRecords spools records, batches them with a window, and reads them as a receiver does.
func TestRecords(t *testing.T) {
	b := NewBatch(func(profile.Hash) bool { return true })
	if err := b.Add(Seal(window(1), profile.Run{1})); err != nil {
		t.Fatal(err)
	}
	var want []*profile.Record
	for i := range uint64(3) {
		r := decision(i)
		r.Series["instance"] = strings.Repeat("i", int(i)) // each of a series of its own
		want = append(want, r)
		data, err := proto.Marshal(SealRecord(r))
		if err != nil {
			t.Fatal(err)
		}
		var s atysv1.Spooled
		if err := proto.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		b.AddRecord(s.GetRecord(), s.GetSeries())
	}
	request := b.Request()
	if _, err := CheckPush(request); err != nil {
		t.Fatal(err)
	}
	got, wrong, err := Records(request)
	if err != nil || len(wrong) > 0 || len(got) != len(want) || len(request.GetWindows()) != 1 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	for i := range got {
		if !sameRecord(&got[i], want[i]) {
			t.Errorf("record %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// TestWrongRecords changes one thing about the first of two records that are right: the other
// one stays right, unless the request is too large.
func TestWrongRecords(t *testing.T) {
	for name, change := range map[string]func(r *atysv1.PushRequest, m *atysv1.Record){
		"no kind":              func(_ *atysv1.PushRequest, m *atysv1.Record) { m.Kind = "" },
		"a long kind":          func(_ *atysv1.PushRequest, m *atysv1.Record) { m.Kind = strings.Repeat("k", MaxLabel+1) },
		"a long encoding":      func(_ *atysv1.PushRequest, m *atysv1.Record) { m.Encoding = strings.Repeat("k", MaxLabel+1) },
		"a large payload":      func(_ *atysv1.PushRequest, m *atysv1.Record) { m.Payload = make([]byte, profile.MaxPayload+1) },
		"a short run":          func(_ *atysv1.PushRequest, m *atysv1.Record) { m.Run = m.Run[1:] },
		"before 1970":          func(_ *atysv1.PushRequest, m *atysv1.Record) { m.StartUnixNano = -1 },
		"a negative duration":  func(_ *atysv1.PushRequest, m *atysv1.Record) { m.DurationNs = -1 },
		"a long duration":      func(_ *atysv1.PushRequest, m *atysv1.Record) { m.DurationNs = 1<<63 - 1 },
		"a series that is not": func(_ *atysv1.PushRequest, m *atysv1.Record) { m.Series = 2 },
		"a long label": func(r *atysv1.PushRequest, _ *atysv1.Record) {
			r.Series[0].Labels["l"] = strings.Repeat("v", MaxLabel+1)
		},
		"too many": func(r *atysv1.PushRequest, m *atysv1.Record) { r.Records = repeated(m, MaxWindows+1) },
	} {
		b := NewBatch(nil)
		for i := range uint64(2) {
			one := decision(i)
			one.Series["instance"] = strings.Repeat("i", int(i))
			s := SealRecord(one)
			b.AddRecord(s.GetRecord(), s.GetSeries())
		}
		request := b.Request()
		if _, wrong, err := Records(request); err != nil || len(wrong) > 0 {
			t.Fatalf("%s: before the change: %v, %v", name, wrong, err)
		}
		change(request, request.Records[0])
		switch all, wrong, err := Records(request); {
		case name == "too many":
			if err == nil {
				t.Errorf("%s: accepted", name)
			}
		case err != nil || len(wrong) != 1 || wrong[0] == nil || all[1].Sequence != 1:
			t.Errorf("%s: %+v, %v, %v", name, all, wrong, err)
		}
		if _, err := CheckPush(request); err != nil {
			t.Errorf("%s: the windows of the request are refused: %v", name, err)
		}
	}
	if _, err := OpenRecord(nil, nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("no record: %v", err)
	}
}

func repeated(m *atysv1.Record, n int) (all []*atysv1.Record) {
	for range n {
		all = append(all, m)
	}
	return all
}

func TestRefusedRecords(t *testing.T) {
	refusal := func(at ...uint32) (all []*atysv1.RefusedRecord) {
		for _, i := range at {
			all = append(all, &atysv1.RefusedRecord{Record: i, Why: "too old"})
		}
		return all
	}
	for name, test := range map[string]struct {
		answer  *atysv1.PushResponse
		refused int
		kept    bool
	}{
		"an older receiver":        {&atysv1.PushResponse{}, 0, false},
		"all are kept":             {&atysv1.PushResponse{KeptRecords: 3}, 0, true},
		"one is refused":           {&atysv1.PushResponse{KeptRecords: 2, RefusedRecords: refusal(1)}, 1, true},
		"all are refused":          {&atysv1.PushResponse{RefusedRecords: refusal(0, 1, 2)}, 3, true},
		"one is missing":           {&atysv1.PushResponse{KeptRecords: 1, RefusedRecords: refusal(1)}, 1, false},
		"one is refused twice":     {&atysv1.PushResponse{KeptRecords: 1, RefusedRecords: refusal(1, 1)}, 1, false},
		"one is refused, not ours": {&atysv1.PushResponse{KeptRecords: 2, RefusedRecords: refusal(3)}, 0, false},
		"stacks are unknown":       {&atysv1.PushResponse{KeptRecords: 3, Unknown: make([]byte, 16)}, 0, false},
	} {
		if refused, kept := RefusedRecords(test.answer, 3); len(refused) != test.refused || kept != test.kept {
			t.Errorf("%s: %v, %t", name, refused, kept)
		}
	}
}

// FuzzRecords reads what strangers send: what is accepted is within all limits, and is sealed
// as it was sent.
func FuzzRecords(f *testing.F) {
	b := NewBatch(nil)
	for i := range uint64(2) {
		s := SealRecord(decision(i))
		b.AddRecord(s.GetRecord(), s.GetSeries())
	}
	data, err := proto.Marshal(b.Request())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	codec := NewBinary()
	f.Fuzz(func(t *testing.T, data []byte) {
		var request atysv1.PushRequest
		if codec.Unmarshal(data, &request) != nil {
			return
		}
		all, wrong, err := Records(&request)
		if err != nil {
			return
		}
		for i := range all {
			if wrong[i] != nil {
				continue
			}
			if err := errors.Join(all[i].Check(), CheckLabels(all[i].Series)); err != nil {
				t.Fatalf("accepted: %v", err)
			}
			s := SealRecord(&all[i])
			again, err := OpenRecord(s.GetRecord(), s.GetSeries())
			if err != nil || !sameRecord(&again, &all[i]) {
				t.Fatalf("%+v is sealed as %+v, %v", all[i], again, err)
			}
		}
	})
}
