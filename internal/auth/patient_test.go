package auth

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

// answering is a server that loses patience soon, and tells how its answers ended.
func answering(t *testing.T, h func(http.ResponseWriter) error) (s *httptest.Server, ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	s = httptest.NewUnstartedServer(patientFor(soon, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ended <- h(w) })))
	s.EnableHTTP2 = true
	t.Cleanup(s.Close)
	return s, ended
}

// soon is when an answer that nobody reads is given up. Who reads slowly pauses for a
// sixth of it: a busy machine must not make five times as much of that.
const soon = 900 * time.Millisecond

// much is more than lies between a server and who does not read.
const much = 64 << 20

// TestAnswersNobodyReads gives them up, one at once and one of parts.
func TestAnswersNobodyReads(t *testing.T) {
	for name, h := range map[string]func(http.ResponseWriter) error{
		"at once": func(w http.ResponseWriter) error {
			_, err := w.Write(make([]byte, much))
			return err
		},
		"a stream": func(w http.ResponseWriter) error {
			for range much >> 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return err
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ended := answering(t, h)
			s.Start()
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(testwait.Longest(t)):
				t.Error("it is still kept")
			}
		})
	}
}

// TestAnswersOverHTTP2 gives up those that nobody reads, and lets others say
// nothing for longer than that.
func TestAnswersOverHTTP2(t *testing.T) {
	for name, test := range map[string]struct {
		reads bool
		h     func(http.ResponseWriter) error
	}{
		"unread": {false, func(w http.ResponseWriter) error {
			_, err := w.Write(make([]byte, much))
			return err
		}},
		"silent": {true, func(w http.ResponseWriter) error {
			for range 3 {
				if _, err := io.WriteString(w, "a"); err != nil {
					return err
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
				time.Sleep(2 * soon)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ended := answering(t, test.h)
			s.StartTLS()
			answer, err := s.Client().Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.ProtoMajor != 2 {
				t.Fatalf("it is of %s", answer.Proto)
			}
			if test.reads {
				if all, err := io.ReadAll(answer.Body); string(all) != "aaa" || err != nil {
					t.Errorf("%q, %v came", all, err)
				}
			}
			if err := <-ended; (err == nil) != test.reads {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestSlowReaders gives all of an answer to who reads it slowly, and answers the
// next request of the same connection.
func TestSlowReaders(t *testing.T) {
	const all = 24 << 20
	s, ended := answering(t, func(w http.ResponseWriter) error {
		w.Header().Set("Content-Length", "25165824")
		_, err := w.Write(make([]byte, all))
		return err
	})
	s.Start()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	from := bufio.NewReader(c)
	for range 2 {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		for left := all; left > 0; time.Sleep(soon / 6) { // some three times as long as patience lasts
			n, err := io.CopyN(io.Discard, answer.Body, int64(min(left, all/20)))
			if left -= int(n); err != nil {
				t.Fatalf("%v with %d bytes to come", err, left)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(2 * soon) // what was due then is due no more
	}
}
