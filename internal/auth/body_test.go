package auth

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
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

// TestBodiesThatBreakOff answers no request with success whose body did not come whole.
func TestBodiesThatBreakOff(t *testing.T) {
	begun, statuses := make(chan bool, 1), make(chan int, 1)
	h := (&Bodies{Each: large, All: large}).Whole(AtOnce(1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		begun <- true
		h.ServeHTTP(answer, r)
		statuses <- answer.Code
	}))
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	for name, protocol := range map[string]func(*http.Protocols){
		"HTTP/1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{Protocols: &http.Protocols{}}
			protocol(transport.Protocols)
			defer transport.CloseIdleConnections()
			for range 20 { // what is ready at once is taken by chance
				body, rest := io.Pipe()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = large
				go func() {
					_, _ = rest.Write(make([]byte, large/2)) // more than clients gather before they send
					<-begun
					rest.CloseWithError(io.ErrUnexpectedEOF)
				}()
				if answer, err := (&http.Client{Transport: transport}).Do(r); err == nil {
					answer.Body.Close()
					t.Fatalf("it is answered before it has come: %s", answer.Status)
				}
				if status := <-statuses; status != http.StatusServiceUnavailable {
					t.Fatalf("it is answered %d", status)
				}
			}
		})
	}
}

// TestNobodyWaits gives a request a status that looks as if nobody waited for its answer.
func TestNobodyWaits(t *testing.T) {
	goOn, begun := make(chan bool), make(chan bool, 1)
	h := AtOnce(1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-goOn
	}))
	var busy sync.WaitGroup
	busy.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)) })
	defer busy.Wait()
	defer close(goOn)
	<-begun
	ended, end := context.WithCancel(t.Context())
	end()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ended, http.MethodPost, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("it is answered %d", w.Code)
	}
}
