package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// stubborn is a server that has a clock of its own, and does not answer each time.
type stubborn struct {
	atysv1connect.UnimplementedControlHandler
	atysv1connect.UnimplementedQueryHandler
	ahead time.Duration      // its clock, of this machine's
	polls func(n int) error  // what comes of the n-th; nil: an answer
	asks  func(n int) error  // of the n-th question
	path  string             // of what was recorded
	nodes []*atysv1.NodeTask // how they fare, however long one waits
	lacks *atysv1.Coverage   // of each answer, of times from when the recording began

	mu            sync.Mutex // guards all below
	profile       *spec.Profile
	created       time.Time
	polled, asked int
	deleted       bool
}

func (s *stubborn) serve(t *testing.T) (address string) {
	t.Helper()
	s.path = filepath.Join(t.TempDir(), "recorded.folded")
	if err := os.WriteFile(s.path, []byte("main;work 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(atysv1connect.NewControlHandler(s))
	mux.Handle(atysv1connect.NewQueryHandler(s))
	h := httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h.URL
}

func (s *stubborn) Apply(_ context.Context, r *atysv1.ApplyRequest) (*atysv1.ApplyResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := spec.ParseJSON([]byte(r.GetObjects()[0]))
	if err != nil {
		return nil, err
	}
	s.profile, s.created = p, time.Now().Add(s.ahead)
	return &atysv1.ApplyResponse{Objects: s.objects()}, nil
}

func (s *stubborn) objects() []*atysv1.Object {
	until := s.created.Add(s.profile.Duration)
	phase := "running"
	if time.Now().Add(s.ahead).After(until) {
		phase = "done"
	}
	for _, n := range s.nodes {
		if n.GetState().GetPhase() == "running" {
			phase = "running"
		}
	}
	text, _ := json.Marshal(s.profile) // it can be written
	return []*atysv1.Object{{Kind: "profiles", Name: s.profile.Name, Status: &atysv1.Object_Profile{Profile: &atysv1.ProfileStatus{Profile: string(text),
		CreatedUnixNano: s.created.UnixNano(), UntilUnixNano: until.UnixNano(), Phase: phase, Nodes: s.nodes}}}}
}

func (s *stubborn) Get(context.Context, *atysv1.GetRequest) (*atysv1.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled++; s.polls != nil {
		if err := s.polls(s.polled); err != nil {
			return nil, err
		}
	}
	return &atysv1.GetResponse{Objects: s.objects()}, nil
}

func (s *stubborn) Delete(context.Context, *atysv1.DeleteRequest) (*atysv1.DeleteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = true
	return &atysv1.DeleteResponse{}, nil
}

func (s *stubborn) Merge(_ context.Context, r *atysv1.MergeRequest) (*atysv1.MergeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.asks != nil {
		if err := s.asks(s.asked); err != nil {
			return nil, err
		}
	}
	began := s.created.UnixNano()
	if about := r.GetSelection(); about.GetTask() != s.profile.Name || began < about.GetFromUnixNano() || began >= about.GetToUnixNano() {
		return &atysv1.MergeResponse{}, nil
	}
	w, err := format.Read(s.path)
	if err != nil {
		return nil, err
	}
	asSampled(w, s.profile.Name, s.created)
	return &atysv1.MergeResponse{Window: wire.Seal(w, profile.Run{1}), Coverage: s.lacking()}, nil
}

// lacking is the coverage of an answer, at its times.
func (s *stubborn) lacking() *atysv1.Coverage {
	if s.lacks == nil {
		return nil
	}
	c := proto.Clone(s.lacks).(*atysv1.Coverage)
	for _, n := range c.GetNodes() {
		for _, span := range n.GetMissing() {
			span.FromUnixNano += s.created.UnixNano()
			span.ToUnixNano += s.created.UnixNano()
		}
	}
	return c
}

// TestRecordOfAPart has one agent of several not end, one fail, and windows be
// missing: what is printed and the file name them, and nobody else.
func TestRecordOfAPart(t *testing.T) {
	s := &stubborn{nodes: []*atysv1.NodeTask{{Node: "killed", State: &atysv1.TaskState{Phase: "running"}}, {Node: "broken", State: &atysv1.TaskState{Phase: "failed", Message: "no rights"}},
		{Node: "well", State: &atysv1.TaskState{Phase: "done"}}, {Node: "bored", State: &atysv1.TaskState{Phase: "waiting"}}}}
	hour := int64(time.Hour)
	s.lacks = &atysv1.Coverage{DoubtfulWindows: 3, Losses: []*atysv1.Loss{{Reason: string(profile.LossSpoolLimit), N: 4}, {Reason: string(profile.LossTruncated), N: 5}},
		Nodes: []*atysv1.NodeCoverage{
			{Node: "gapped", Task: "t", WatchedNs: 1e9, Missing: []*atysv1.Span{{FromUnixNano: -hour, ToUnixNano: 2e9}}},
			{Node: "well", Task: "t", WatchedNs: 3e9, Missing: []*atysv1.Span{{FromUnixNano: -hour, ToUnixNano: 0}}}}}
	address := s.serve(t)
	p, err := spec.ParseJSON([]byte(`{"kind":"Profile","name":"x","duration":"3s","window":"1s"}`))
	if err != nil {
		t.Fatal(err)
	}
	r := remote.NewRecording(http.DefaultClient, address, p)
	r.Patience = time.Second
	out, err := newOutput(filepath.Join(t.TempDir(), "out.pb.gz"), "", outputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	window, err := r.Fetch(t.Context())
	if err != nil || window == nil {
		t.Fatal(window, err)
	}
	if err := writeRecorded(window, r.Missing(), out, io.Discard); err != nil {
		t.Fatal(err)
	}
	recorded, err := format.Read(out.path)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(recorded.Comments, "\n")
	for _, want := range []string{"node killed has not said that it is done (it is running)", "node broken failed: no rights", "node gapped (t): 1s of 3s were watched; missing ", "3 windows may", "spool"} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q: %s", want, said)
		}
	}
	for _, not := range []string{"well", "bored"} {
		if strings.Contains(said, "node "+not) {
			t.Errorf("%s is named: %s", not, said)
		}
	}
}

// untilThe fails each time before the n-th.
func untilThe(n int, code connect.Code) func(int) error {
	return func(i int) error {
		if i < n {
			return connect.NewError(code, errors.New("not now"))
		}
		return nil
	}
}

// TestRecordWithAServerThatIsAway records with servers that are away for a while,
// and with ones whose clock is another.
func TestRecordWithAServerThatIsAway(t *testing.T) {
	for name, s := range map[string]*stubborn{
		"polls fail":         {polls: untilThe(4, connect.CodeUnavailable)},
		"it takes too long":  {polls: untilThe(2, connect.CodeDeadlineExceeded)},
		"a question fails":   {asks: untilThe(3, connect.CodeUnavailable)},
		"its clock is late":  {ahead: -3 * time.Hour},
		"its clock is early": {ahead: 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.folded")
			printed, status := typed(t, "record", "--server", s.serve(t), "-d", "1s", "-o", out)
			if recorded, err := os.ReadFile(out); status != 0 || err != nil || !strings.Contains(string(recorded), "main;work") {
				t.Errorf("%d, %s: %v, %q", status, printed, err, recorded)
			}
			if !s.deleted {
				t.Error("the profile stays")
			}
		})
	}
}

// TestRecordThatBringsNothing follows what it says when a server cannot be asked.
func TestRecordThatBringsNothing(t *testing.T) {
	s := &stubborn{ahead: -3 * time.Hour, polls: untilThe(2, connect.CodeInternal)}
	printed, status := typed(t, "record", "--server", s.serve(t), "-d", "1s", "-o", filepath.Join(t.TempDir(), "out.folded"))
	_, command, found := strings.Cut(printed, "this gets it: atys ")
	if status == 0 || !found || !strings.Contains(printed, "not now") {
		t.Fatalf("%d, %s", status, printed)
	}
	if printed, status := typed(t, strings.Fields(command)...); status != 0 || !strings.Contains(printed, "main;work ") {
		t.Errorf("%s: %d, %s", command, status, printed)
	}
}

// TestRecordingIsPatient waits for a server as long as is said, and no longer.
func TestRecordingIsPatient(t *testing.T) {
	s := &stubborn{polls: untilThe(1000, connect.CodeUnavailable)}
	p, err := spec.ParseJSON([]byte(`{"kind":"Profile","name":"x","duration":"1s","window":"1s"}`))
	if err != nil {
		t.Fatal(err)
	}
	r := remote.NewRecording(http.DefaultClient, s.serve(t), p)
	r.Patience = time.Second
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := r.Fetch(t.Context()); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("it ends with %v", err)
	}
	if waited := time.Since(began); waited < p.Duration+r.Patience-100*time.Millisecond || s.polled < 3 {
		t.Errorf("it gave up after %v and %d polls", waited, s.polled)
	}
}
