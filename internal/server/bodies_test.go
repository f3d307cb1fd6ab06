package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/testwait"
)

// TestHugeRequests refuses what takes more memory than its bytes tell, for good.
func TestHugeRequests(t *testing.T) {
	r := start(t)
	for name, test := range map[string]struct {
		kind string
		body []byte
	}{
		"windows": {"application/proto", bytes.Repeat([]byte{0x1a, 0}, wire.MaxWindows+1)},
		"gRPC":    {"application/grpc-web+proto", append([]byte{0, 0, 0, 0x4e, 0x22}, bytes.Repeat([]byte{0x1a, 0}, wire.MaxWindows+1)...)},
		"JSON":    {"application/json", []byte(`{"windows":[` + strings.Repeat("{},", wire.MaxJSON/3) + `{}]}`)},
		"parts":   {"application/proto", slices.Concat(containing(wire.MaxWindows/2), containing(wire.MaxWindows/2+1))},
		"bytes":   {"application/proto", make([]byte, wire.MaxRequest+1)},
	} {
		q, err := http.NewRequest(http.MethodPost, r.URL+atysv1connect.IntakePushProcedure, bytes.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", test.kind)
		q.Header.Set("Authorization", "Bearer default/agent")
		answer, err := r.Client().Do(q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		said := string(text) + answer.Trailer.Get("Grpc-Message") + answer.Header.Get("Grpc-Message")
		if !strings.Contains(said, "at most") && !strings.Contains(said, "exceeded") {
			t.Errorf("%s: %s, %.300s", name, answer.Status, said)
		}
	}
}

// containing is a request's window that contains so many, of nothing.
func containing(n int) []byte {
	parts := bytes.Repeat([]byte{0x92, 1, 0}, n)
	return append(protowire.AppendVarint([]byte{0x1a}, uint64(len(parts))), parts...)
}

// TestSlowBodies has nobody who is known hold up others by a body that does not come.
func TestSlowBodies(t *testing.T) {
	r := start(t)
	for i := range 100 {
		c, err := net.Dial("tcp", r.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		head := "POST " + atysv1connect.IntakePushProcedure + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer default/agent\r\n" +
			fmt.Sprintf("Content-Type: application/proto\r\nContent-Length: %d\r\n\r\n", wire.MaxRequest)
		if _, err := io.WriteString(c, head+strings.Repeat("x", i*1000)); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := request(t, false, "shop", noon)
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Longest(t)) // bodies that do not come are waited for longer
	defer cancel()
	if _, err := r.intake.Push(ctx, p); err != nil {
		t.Errorf("another's push: %v", err)
	}
}
