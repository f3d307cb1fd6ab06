package remote

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestHugeAnswers takes so much of what a server says, and no more.
func TestHugeAnswers(t *testing.T) {
	for size, taken := range map[int]bool{100: true, wire.MaxRequest: false} {
		answer, err := proto.Marshal(&atysv1.PushResponse{Unknown: make([]byte, size)})
		if err != nil {
			t.Fatal(err)
		}
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			_, _ = w.Write(answer)
		}))
		_, err = New(h.Client(), h.URL).Push(t.Context(), &atysv1.PushRequest{})
		if (err == nil) != taken || !taken && connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%d bytes: %v", size, err)
		}
		h.Close()
	}
}

// way is what is between us and a server.
type way func(*http.Request) (*http.Response, error)

func (w way) Do(r *http.Request) (*http.Response, error) { return w(r) }

// answers has a request be answered by one who is there.
func answers(h http.HandlerFunc) way {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h(w, r)
		return w.Result(), nil
	}
}

// TestRefuses has what a server says be for good, and nothing that befalls a request
// or its answer on the way.
func TestRefuses(t *testing.T) {
	says := func(code connect.Code) way {
		return answers(func(w http.ResponseWriter, r *http.Request) {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(code, errors.New("no"))) // it is in memory
		})
	}
	bare := func(status int) way {
		return answers(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) })
	}
	for name, c := range map[string]struct {
		way     way
		refuses bool
	}{
		"wrong, it says":    {says(connect.CodeInvalidArgument), true},
		"too much, it says": {says(connect.CodeResourceExhausted), true},
		"later, it says":    {says(connect.CodeUnavailable), false},
		"a reset": {func(*http.Request) (*http.Response, error) {
			return nil, errors.New("stream error: stream ID 5; ENHANCE_YOUR_CALM; received from peer")
		}, false},
		"a proxy with too many requests": {bare(http.StatusTooManyRequests), false},
		"a proxy that does not know it":  {bare(http.StatusBadRequest), false},
		"an answer that is not packed": {answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("noise")) // likewise
		}), false},
		"an answer of noise": {answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			_, _ = w.Write([]byte("noise")) // likewise
		}), false},
	} {
		s := New(c.way, "http://127.0.0.1:1")
		_, pushed := s.Push(t.Context(), &atysv1.PushRequest{})
		_, reported := s.Report(t.Context(), &atysv1.ReportRequest{})
		for _, err := range []error{pushed, reported} {
			if err == nil || Refuses(err) != c.refuses {
				t.Errorf("%s: refused for good is %v: %v", name, Refuses(err), err)
			}
		}
	}
}
