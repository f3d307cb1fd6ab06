package remote

import (
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
		if (err == nil) != taken || !taken && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%d bytes: %v", size, err)
		}
		h.Close()
	}
}
