package main

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestConnectionInReserve uses a connection some time after it was made, as
// clients do that made one more than they needed: of ten seconds that windows are
// apart it had been closed, or answered that the request was bad.
func TestConnectionInReserve(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	go func() { _ = s.Serve(l) }() // it ends when it is closed
	defer s.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const reserve = 10500 * time.Millisecond
	time.Sleep(reserve)
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	if idleClientConnection >= idleConnection {
		t.Error("servers close connections that clients think they may use")
	}
}
