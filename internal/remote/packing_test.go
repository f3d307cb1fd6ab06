package remote

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

type intake struct{}

func (intake) Push(context.Context, *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	return &atysv1.PushResponse{}, nil
}

// TestPacking sends gzip to a server of which nothing is known, and to one that
// knows nothing else, and zstd once it says that it takes it; also where the one
// takes the place of the other.
func TestPacking(t *testing.T) {
	_, older := atysv1connect.NewIntakeHandler(intake{})
	_, newer := atysv1connect.NewIntakeHandler(intake{}, wire.Reading())
	now, sent := older, []string{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Content-Encoding"))
		now.ServeHTTP(w, r)
	}))
	defer h.Close()
	s := New(h.Client(), h.URL)
	push := func() error {
		_, err := s.Push(t.Context(), &atysv1.PushRequest{Stacks: make([]byte, 16)})
		return err
	}
	for _, step := range []struct {
		server http.Handler
		fails  bool
		sent   string
	}{{older, false, "gzip"}, {older, false, "gzip"}, {newer, false, "gzip"}, {newer, false, "zstd"}, {older, true, "zstd"}, {older, false, "gzip"}} {
		now = step.server
		if err := push(); (err != nil) != step.fails || step.fails && connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("after %q: %v", sent, err)
		}
		if got := sent[len(sent)-1]; got != step.sent {
			t.Errorf("%q was sent, want %q", sent, step.sent)
		}
	}
	if !slices.Contains(sent, "zstd") {
		t.Errorf("sent %q", sent)
	}
}
