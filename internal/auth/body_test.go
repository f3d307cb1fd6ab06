package auth

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

const large = 100_000 // bytes: a body that takes room

// sender sends a body of which a part comes, and the rest once it is asked for.
type sender struct {
	rest     *io.PipeWriter
	answered chan *httptest.ResponseRecorder
}

// sent has h be asked with a body of which so many bytes come at first.
func sent(t *testing.T, h http.Handler, length int64, first int) *sender {
	t.Helper()
	body, rest := io.Pipe()
	t.Cleanup(func() { rest.Close() })
	s := &sender{rest, make(chan *httptest.ResponseRecorder, 1)}
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ContentLength = length
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body.Close() // who sends more is told
		s.answered <- w
	}()
	s.send(first)
	return s
}

// send sends more, as fast as it is read, and waits until it is.
func (s *sender) send(n int) { _, _ = s.rest.Write(make([]byte, n)) }

// counted answers with how much came.
var counted = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if n, err := io.Copy(io.Discard, r.Body); n != large || err != nil {
		http.Error(w, "not all of it came", http.StatusBadRequest)
	}
})

func (b *Bodies) holds() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// TestSlowSendersKeepNobodyOut has many promise much, and send little of it.
func TestSlowSendersKeepNobodyOut(t *testing.T) {
	b := &Bodies{Each: large, All: 2 * large}
	h := b.Whole(counted)
	for range 500 {
		sent(t, h, large, 100)
	}
	s := sent(t, h, large, large)
	s.rest.Close()
	if w := <-s.answered; w.Code != http.StatusOK {
		t.Errorf("another's body: %d %s", w.Code, w.Body)
	}
}

// TestBodiesAreBounded has many send almost all of their bodies at once: only so
// much is read, and all of them come to their end all the same.
func TestBodiesAreBounded(t *testing.T) {
	for name, length := range map[string]int64{"with a length": large, "without": -1} {
		t.Run(name, func(t *testing.T) {
			b, most := &Bodies{Each: large, All: 2 * large}, atomic.Int64{}
			h := b.Whole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				most.Store(max(most.Load(), b.holds()))
				if n, err := io.Copy(io.Discard, r.Body); n != large || err != nil {
					t.Errorf("%d bytes, %v", n, err)
				}
			}))
			const all = 50
			ended := make(chan int, all)
			for range all {
				go func() {
					s := sent(t, h, length, large-1)
					s.send(1)
					s.rest.Close()
					ended <- (<-s.answered).Code
				}()
			}
			for range all {
				if code := <-ended; code != http.StatusOK {
					t.Errorf("a body is refused: %d", code)
				}
			}
			if got := most.Load(); got > 4*large {
				t.Errorf("%d bytes were held", got)
			}
			if got := b.holds(); got != 0 || b.over {
				t.Errorf("%d bytes are held of nobody, over: %v", got, b.over)
			}
		})
	}
}

// TestNoRoom tells who finds no room in time to come again, and gives it to who
// finds some.
func TestNoRoom(t *testing.T) {
	b := &Bodies{Each: large, All: large + 1, patience: 300 * time.Millisecond}
	goOn := make(chan bool)
	h := b.Whole(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-goOn
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	var waiting []*sender
	for range 2 { // one has all the room, one is the one that may take more
		s := sent(t, h, large, large)
		s.rest.Close()
		waiting = append(waiting, s)
	}
	s := sent(t, h, large, large)
	if w := <-s.answered; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	small := sent(t, b.Whole(http.NotFoundHandler()), 100, 100)
	small.rest.Close()
	if w := <-small.answered; w.Code != http.StatusNotFound {
		t.Errorf("a small one: %d", w.Code)
	}
	close(goOn)
	for _, s := range waiting {
		if w := <-s.answered; w.Code != http.StatusOK {
			t.Errorf("who was there before: %d", w.Code)
		}
	}
}

// TestReadBodiesTakeNoRoom has an answer stay that has read its body.
func TestReadBodiesTakeNoRoom(t *testing.T) {
	b := &Bodies{Each: large, All: large}
	h := b.Whole(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if b.holds() == 0 {
			t.Error("a body that waits takes no room")
		}
		var all bytes.Buffer
		if _, err := io.CopyN(&all, r.Body, large); err != nil {
			t.Error(err)
		}
		if got := b.holds(); got != 0 {
			t.Errorf("a body that was read takes %d bytes", got)
		}
		if _, err := all.ReadFrom(r.Body); err != nil || all.Len() != large {
			t.Errorf("%d bytes: %v", all.Len(), err)
		}
	}))
	s := sent(t, h, large, large)
	s.rest.Close()
	<-s.answered
}
