package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// recordKeeper is a server that keeps records, but for those of one kind.
type recordKeeper struct {
	*keeper
	older bool // it drops records without a word

	mu      sync.Mutex // guards all below
	records map[string]int
}

func (k *recordKeeper) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := k.keeper.Push(ctx, r)
	if k.older || err != nil || len(response.GetUnknown()) > 0 {
		return response, err
	}
	all, wrong, err := wire.Records(r)
	if err != nil || len(wrong) > 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("malformed records: %v, %v", wrong, err)) // as servers of earlier versions
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, one := range all {
		if one.Kind == "refused" {
			response.RefusedRecords = append(response.RefusedRecords, &atysv1.RefusedRecord{Record: uint32(i), Why: string(one.Payload)})
			continue
		}
		response.KeptRecords++
		k.records[fmt.Sprint(one.Series, one.Kind, one.Start.UnixNano(), one.Run, one.Sequence)]++
	}
	return response, nil
}

// record is one of an agent, to be sent.
func record(kind, instance string, sequence uint64) *atysv1.Spooled {
	return wire.SealRecord(&profile.Record{Series: profile.Labels{"service": "shop", "instance": instance}, Kind: kind, Start: time.Unix(1_700_000_000, 0),
		Sequence: sequence, Payload: fmt.Append(nil, "of ", instance, sequence)})
}

// shipRecords sends records with windows, as one request.
func shipRecords(to pusher, windows []*atysv1.Spooled, all ...*atysv1.Spooled) (*atysv1.PushResponse, error) {
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	for _, w := range windows {
		if err := b.Add(w); err != nil {
			return nil, err
		}
	}
	for _, r := range all {
		b.AddRecord(r.GetRecord(), r.GetSeries())
	}
	request := b.Request()
	request.Partly = true
	return to.Push(context.Background(), request)
}

// TestRecords passes records of many agents on, through relays that add windows up and
// others: each agent is told what became of its own, and each is kept once.
func TestRecords(t *testing.T) {
	for name, keep := range map[string][]string{"as they are": nil, "added up": {"service"}} {
		t.Run(name, func(t *testing.T) {
			server := &recordKeeper{keeper: newKeeper(), records: map[string]int{}}
			to := Upstream(relayed{beganAs(t, Options{Upstream: server, Gather: 20 * time.Millisecond})})
			to = relayed{beganAs(t, Options{Upstream: to, Gather: 20 * time.Millisecond, Keep: keep})}
			const agents = 30
			var all sync.WaitGroup
			for i := range agents {
				all.Go(func() {
					instance := fmt.Sprint(i)
					var windows []*atysv1.Spooled
					if i%3 > 0 {
						windows = []*atysv1.Spooled{sealed(uint64(i%7), instance)}
					}
					answer, err := shipRecords(to, windows, record("decision", instance, 1), record("refused", instance, 2), record("decision", instance, 3))
					if err != nil {
						t.Errorf("agent %d: %v", i, err)
						return
					}
					refused, kept := wire.RefusedRecords(answer, 3)
					if !kept || len(refused) != 1 || refused[1] != fmt.Sprint("of ", instance, 2) {
						t.Errorf("agent %d is told %v, %v, %t", i, answer, refused, kept)
					}
				})
			}
			all.Wait()
			if len(server.records) != 2*agents {
				t.Errorf("%d records are kept, want %d", len(server.records), 2*agents)
			}
			if want := agents - agents/3; keep == nil && len(server.windows) != want {
				t.Errorf("%d windows are kept, want %d", len(server.windows), want)
			}
		})
	}
}

// TestRecordsOfOlderServer keeps windows and acknowledges no record.
func TestRecordsOfOlderServer(t *testing.T) {
	server := &recordKeeper{keeper: newKeeper(), older: true}
	r := began(t, server)
	for _, windows := range [][]*atysv1.Spooled{nil, {sealed(1, "one")}} {
		answer, err := shipRecords(r, windows, record("decision", "one", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, kept := wire.RefusedRecords(answer, 1); kept {
			t.Errorf("acknowledged: %v", answer)
		}
	}
	if len(server.windows) != 1 {
		t.Errorf("%d windows are kept", len(server.windows))
	}
}

// TestMalformedRecordsAreCountedOnce counts and logs malformed records when the server has answered
// for the others, not each time that they are sent again, and keeps its log short.
func TestMalformedRecordsAreCountedOnce(t *testing.T) {
	server := &recordKeeper{keeper: newKeeper(), older: true, records: map[string]int{}}
	var log strings.Builder
	at := time.Now()
	r := beganAs(t, Options{Upstream: server, Gather: 20 * time.Millisecond, Now: func() time.Time { return at },
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	wrong := record("decision", "one", 1)
	wrong.Record.Run, wrong.Record.Kind = nil, strings.Repeat("k", 1<<20)
	sendTwice := func() {
		for range 2 {
			if _, err := shipRecords(r, nil, wrong, record("decision", "one", 2)); err != nil {
				t.Fatal(err)
			}
		}
	}
	sendTwice()
	if n := testutil.ToFloat64(r.metrics.records); n != 0 || log.Len() > 0 {
		t.Errorf("%v are counted before the server keeps records: %.200s", n, log.String())
	}
	server.older = false
	sendTwice()
	if n := testutil.ToFloat64(r.metrics.records); n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
	if lines := strings.Count(log.String(), "malformed records"); lines != 1 || log.Len() > 1000 {
		t.Errorf("%d lines, %d bytes are logged: %.200s", lines, log.Len(), log.String())
	}
}

// TestRecordsOffline acknowledges nothing while the server cannot be reached.
func TestRecordsOffline(t *testing.T) {
	server := &recordKeeper{keeper: newKeeper(), records: map[string]int{}}
	r := began(t, server)
	server.keeper.mu.Lock()
	server.failing = errors.New("no route")
	server.keeper.mu.Unlock()
	if answer, err := shipRecords(r, nil, record("decision", "one", 1)); err == nil {
		t.Errorf("acknowledged: %v", answer)
	}
	server.keeper.mu.Lock()
	server.failing = nil
	server.keeper.mu.Unlock()
	if answer, err := shipRecords(r, nil, record("decision", "one", 1)); err != nil || answer.GetKeptRecords() != 1 {
		t.Errorf("once the server is there: %v, %v", answer, err)
	}
}

// TestMalformedRecords refuses malformed records one by one, by their places in the push, and
// passes on all else. The server never has one, and refuses others for itself.
func TestMalformedRecords(t *testing.T) {
	server := &recordKeeper{keeper: newKeeper(), records: map[string]int{}}
	r := began(t, server)
	wrong, labels := record("decision", "one", 1), record("decision", strings.Repeat("x", wire.MaxLabel+1), 2)
	wrong.Record.Run = nil
	answer, err := shipRecords(r, []*atysv1.Spooled{sealed(1, "one")}, wrong, record("decision", "one", 3), labels, record("refused", "one", 4), record("decision", "one", 5))
	if err != nil {
		t.Fatal(err)
	}
	refused, kept := wire.RefusedRecords(answer, 5)
	if !kept || len(refused) != 3 || refused[0] == "" || refused[2] == "" || refused[3] != "of one4" {
		t.Errorf("%v: %v, %t", answer, refused, kept)
	}
	if len(server.records) != 2 || len(server.windows) != 1 {
		t.Errorf("%d records and %d windows are kept", len(server.records), len(server.windows))
	}
	requests := server.requests
	answer, err = shipRecords(r, nil, wrong)
	if refused, kept := wire.RefusedRecords(answer, 1); err != nil || !kept || len(refused) != 1 || server.requests != requests {
		t.Errorf("alone: %v, %v", answer, err)
	}
	if n := testutil.ToFloat64(r.metrics.records); n != 3 {
		t.Errorf("%v are counted", n)
	}
}
