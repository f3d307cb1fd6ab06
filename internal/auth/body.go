package auth

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// wantedBody is how long the body of a request may take that somebody reads.
const wantedBody = 30 * time.Second

const (
	// leastBody is room that each body has: its connection takes more.
	leastBody = 4 << 10
	// believed is how much room a body is given that says to be so long, once a
	// quarter of it came; beyond it, once half did.
	believed = 64 << 10
)

// Bodies reads the bodies of requests before they are answered: one that comes
// slowly takes nothing but its connection, and that not for long. The answer may
// then take as long as it takes.
//
// What has come and nobody has read yet takes memory, and of that there is so
// much and no more: who finds none is not read on until there is. It is counted
// as it comes and not by requests, so that whoever sends slowly keeps nobody out.
type Bodies struct {
	Each int64 // bytes of one, at most
	All  int64 // bytes of all that wait to be answered

	patience time.Duration // 0: wantedBody

	mu    sync.Mutex // guards all below
	held  int64
	over  bool          // one of them takes more than there is
	freed chan struct{} // closed when there is more room; nil: nobody waits
}

var errNoRoom = errors.New("too much is being sent at once: send again in a moment")

// Whole reads a request's body before next answers.
func (b *Bodies) Whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			body := &body{of: b}
			defer body.release()
			err := body.read(w, r)
			if errors.Is(err, errNoRoom) {
				w.Header().Set("Retry-After", "1")
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			r.Body = body // who answers knows how to tell what went wrong
		}
		next.ServeHTTP(w, r)
	})
}

// body is what came of one.
type body struct {
	of    *Bodies
	data  []byte
	ended error // of reading: io.EOF, if it is all there

	room int64 // that it takes of all
	over bool  // it is the one that takes more than there is
}

// read reads all of it. Of a body that is too large it reads what is allowed, and the handler refuses it.
func (b *body) read(w http.ResponseWriter, r *http.Request) error {
	patience := b.of.patience
	if patience == 0 {
		patience = wantedBody
	}
	within(w, patience)
	late := time.NewTimer(patience)
	defer late.Stop()
	from := http.MaxBytesReader(w, r.Body, b.of.Each)
	for b.ended == nil {
		if len(b.data) == cap(b.data) {
			if err := b.grow(r.ContentLength, late.C); err != nil {
				return err
			}
		}
		n, err := from.Read(b.data[len(b.data):cap(b.data)])
		b.data, b.ended = b.data[:len(b.data)+n], err
	}
	var large *http.MaxBytesError
	switch {
	case b.ended == io.EOF:
		within(w, 0)
	case !errors.As(b.ended, &large):
		return fmt.Errorf("the body of the request did not come whole, send it again: %w", b.ended)
	}
	return nil
}

// GaveUp answers a request whose context has ended. Its client may still be waiting, because
// a failed read of the body ends the context, too; without a status, the answer would be 200.
func GaveUp(w http.ResponseWriter) {
	http.Error(w, "the request ended before it was answered: send it again", http.StatusServiceUnavailable)
}

// grow makes room for more, once there is some.
func (b *body) grow(length int64, late <-chan time.Time) error {
	size := int64(cap(b.data))
	switch {
	case size == 0:
		size = leastBody
	case size < believed:
		size *= 4
	default:
		size *= 2
	}
	if length > 0 && int64(len(b.data)) <= length {
		size = min(size, length+1) // the last byte is for finding out that it ends
	}
	if size > leastBody {
		if err := b.of.take(b, size-b.room, late); err != nil {
			return err
		}
	}
	b.data = append(make([]byte, 0, size), b.data...)
	return nil
}

// take waits for room. Where bodies wait for each other one of them is given what
// it needs all the same, and so it ends.
func (b *Bodies) take(of *body, more int64, late <-chan time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.held+more > b.All && !of.over {
		if !b.over {
			b.over, of.over = true, true
			break
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
			b.mu.Lock()
		case <-late:
			b.mu.Lock()
			return errNoRoom
		}
	}
	b.held += more
	of.room += more
	return nil
}

// release gives back what it took.
func (b *body) release() {
	if b.room == 0 {
		return
	}
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.of.held -= b.room
	b.of.over = b.of.over && !b.over
	b.room, b.over = 0, false
	if b.of.freed != nil {
		close(b.of.freed)
		b.of.freed = nil
	}
}

// Read gives what came, then why there is no more. What has been given takes no
// room any more: some answers stay for days.
func (b *body) Read(to []byte) (int, error) {
	n := copy(to, b.data)
	if b.data = b.data[n:]; len(b.data) > 0 {
		return n, nil
	}
	b.data = nil
	b.release()
	return n, b.ended
}

// Close drops what nobody has read.
func (b *body) Close() error {
	b.data = nil
	b.release()
	return nil
}

// Flowing has a handler read a body of any length itself, as long as it goes on
// coming.
func Flowing(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = &flowing{r.Body, w}
		next(w, r)
	}
}

type flowing struct {
	io.ReadCloser
	answer http.ResponseWriter
}

func (f *flowing) Read(p []byte) (int, error) {
	within(f.answer, wantedBody)
	return f.ReadCloser.Read(p)
}
