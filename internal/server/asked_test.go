package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// unary lists what can be asked that holds no windows, and is answered at once.
func unary() (procedures []string) {
	services := atysv1.File_atys_proto.Services()
	for i := range services.Len() {
		for methods, j := services.Get(i).Methods(), 0; j < methods.Len(); j++ {
			m := methods.Get(j)
			if procedure := "/" + string(m.Parent().FullName()) + "/" + string(m.Name()); !m.IsStreamingServer() && procedure != atysv1connect.IntakePushProcedure {
				procedures = append(procedures, procedure)
			}
		}
	}
	return procedures
}

// packed is a message that a few bytes are unpacked to, of a field that none has.
func packed(t *testing.T, size int) *bytes.Buffer {
	t.Helper()
	const unknown = 127
	data := protowire.AppendBytes(protowire.AppendTag(nil, unknown, protowire.BytesType), make([]byte, size))
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestAskedIsSmall takes no more of what holds no windows than is needed: what a
// few bytes are unpacked to would take the server's memory.
func TestAskedIsSmall(t *testing.T) {
	r := start(t)
	ask := func(procedure string, size int) int {
		q, err := http.NewRequest(http.MethodPost, r.URL+procedure, packed(t, size))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/proto")
		q.Header.Set("Content-Encoding", "gzip")
		q.Header.Set("Authorization", "Bearer default/operator")
		answer, err := r.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	procedures := unary()
	if len(procedures) < 11 {
		t.Fatalf("there are %q", procedures)
	}
	for _, procedure := range procedures {
		if status := ask(procedure, wire.MaxAsked); status != http.StatusTooManyRequests {
			t.Errorf("%s takes more than a megabyte: %d", procedure, status)
		}
		if status := ask(procedure, wire.MaxAsked-100); status == http.StatusTooManyRequests {
			t.Errorf("%s does not take almost a megabyte: %d", procedure, status)
		}
	}
	_, as := admitted(t)
	fleet := atysv1connect.NewFleetClient(as(r.Server, "default/operator"), r.URL)
	long := &atysv1.AttendRequest{Node: "n", Run: make([]byte, 100_000)}
	if err := first(fleet.Attend(t.Context(), long)); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("who stays may say as much as they like: %v", err)
	}
	targets := &atysv1.ReportRequest{Node: "n"}
	for range wire.MaxWindows + 1 {
		targets.Targets = append(targets.Targets, &atysv1.Target{})
	}
	if _, err := fleet.Report(t.Context(), targets); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("more targets than are taken: %v", err)
	}
}

// thoughtful is a store that takes its time for each question.
type thoughtful struct {
	store.Store
	begun, goOn chan bool
}

func (s thoughtful) Series(ctx context.Context, tenant string, q store.Query) ([]profile.Labels, error) {
	select {
	case s.begun <- true:
	case <-s.goOn: // it may be asked for more than once
	}
	<-s.goOn
	return s.Store.Series(ctx, tenant, q)
}

// TestQuestionsAtOnce answers so many at once: who asks more has them wait, and
// all else is answered meanwhile.
func TestQuestionsAtOnce(t *testing.T) {
	const all = 2 * mostQuestions
	admission, as := admitted(t)
	kept := thoughtful{mem.New(1), make(chan bool, all), make(chan bool)}
	s, err := New(Options{Store: kept, Admission: admission, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	client := as(h, "default/operator")
	var asked sync.WaitGroup
	for range all {
		asked.Go(func() {
			about := &atysv1.Selection{Kind: "cpu", FromUnixNano: noon.Add(-time.Hour).UnixNano(), ToUnixNano: noon.UnixNano()}
			if _, err := atysv1connect.NewQueryClient(client, h.URL).Labels(t.Context(), &atysv1.LabelsRequest{Selection: about}); err != nil {
				t.Error(err)
			}
		})
	}
	for range mostQuestions {
		<-kept.begun
	}
	select {
	case <-kept.begun:
		t.Error("one more is answered at once")
	case <-time.After(50 * time.Millisecond):
	}
	if err := fetched(client, h.URL+"/healthz"); err != nil {
		t.Error(err)
	}
	fleet := atysv1connect.NewFleetClient(client, h.URL)
	if _, err := fleet.Report(t.Context(), &atysv1.ReportRequest{Node: "n"}); err != nil {
		t.Error(err)
	}
	if err := first(fleet.Attend(t.Context(), &atysv1.AttendRequest{Node: "n"})); err != nil {
		t.Error(err)
	}
	close(kept.goOn)
	asked.Wait()
}
