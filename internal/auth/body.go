package auth

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// wantedBody is how long the body of a request may take that somebody reads.
const wantedBody = 30 * time.Second

// believed is how much room a body is given before it comes, if it says to be so long.
const believed = 64 << 10

// Whole reads a request's body, of so many bytes at most, before it is answered:
// one that comes slowly takes nothing but its connection, and that not for long.
// The answer may then take as long as it takes.
func Whole(most int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			within(w, wantedBody)
			body := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), believed)+bytes.MinRead))
			_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, most))
			if err == nil {
				within(w, 0)
				err = io.EOF
			}
			r.Body = io.NopCloser(io.MultiReader(body, broken{err})) // who answers knows how to tell of it
		}
		next.ServeHTTP(w, r)
	})
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

// broken is where reading ended.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// AtOnce has at most so many requests be answered at once. The others wait for
// as long as who asks does.
func AtOnce(most int, next http.Handler) http.Handler {
	slots := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}
