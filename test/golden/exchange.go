package golden

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Exchange is a request as it came over HTTP, and what it was answered:
//
//	NUMBER-SENDER-METHOD.request   bytes as HTTP/1.1 has them, as the body is packed
//	NUMBER-SENDER-METHOD.answer    likewise; a stream has what came until it ended
type Exchange struct {
	Name          string
	Request       *http.Request
	Body          []byte
	Answer        *http.Response
	AnswerContent []byte
}

// Recorder keeps the exchanges of senders with what they ask, in the order in which
// requests came.
type Recorder struct {
	Dir string

	answering sync.Mutex // held while windows are: who repeats requests makes one after the other

	mu    sync.Mutex // guards all below
	count int
	err   error
}

// Of records those of one sender.
func (r *Recorder) Of(sender string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if path.Base(q.URL.Path) == "Push" {
			r.answering.Lock()
			defer r.answering.Unlock()
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		kept := q.Clone(q.Context())
		kept.Header.Del("Authorization") // who replays has another one
		kept.Body, q.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
		dump, err := httputil.DumpRequest(kept, true)
		name := r.name(sender, q)
		r.keep(name+".request", dump, err)
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		defer func() { r.keep(name+".answer", a.dump(), nil) }()
		next.ServeHTTP(a, q)
	})
}

func (r *Recorder) name(sender string, q *http.Request) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	return fmt.Sprintf("%03d-%s-%s", r.count, sender, path.Base(q.URL.Path))
}

func (r *Recorder) keep(name string, data []byte, err error) {
	if err == nil {
		err = os.WriteFile(filepath.Join(r.Dir, name), data, 0o600)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// Err is the first error of all.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// answer passes an answer on, and keeps it.
type answer struct {
	http.ResponseWriter
	mu     sync.Mutex // guards all below
	status int
	body   bytes.Buffer
}

// WriteHeader passes the status on.
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	a.status = status
	a.mu.Unlock()
	a.ResponseWriter.WriteHeader(status)
}

// Write passes a part on.
func (a *answer) Write(part []byte) (int, error) {
	a.mu.Lock()
	a.body.Write(part)
	a.mu.Unlock()
	return a.ResponseWriter.Write(part)
}

// Unwrap is for http.ResponseController: streams are flushed.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) dump() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	_ = a.Header().Write(&out) // never fails
	fmt.Fprintf(&out, "\r\n")
	out.Write(a.body.Bytes())
	return out.Bytes()
}

// Exchanges reads what a Recorder has kept, in its order.
func Exchanges(dir string) (all []Exchange, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.request"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, file := range files {
		e, err := exchange(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		all = append(all, e)
	}
	return all, nil
}

func exchange(file string) (e Exchange, err error) {
	e.Name = strings.TrimSuffix(filepath.Base(file), ".request")
	data, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	if e.Request, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(data))); err != nil {
		return e, err
	}
	if e.Body, err = io.ReadAll(e.Request.Body); err != nil {
		return e, err
	}
	data, err = os.ReadFile(strings.TrimSuffix(file, ".request") + ".answer")
	if err != nil {
		return e, err
	}
	// Its length is that of what was sent: a stream has none of its own.
	if e.Answer, err = http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), e.Request); err != nil {
		return e, err
	}
	e.AnswerContent, err = io.ReadAll(e.Answer.Body)
	return e, err
}

// Sender is who made the request.
func (e *Exchange) Sender() string { return strings.Split(e.Name, "-")[1] }

// Method is what was asked for.
func (e *Exchange) Method() string { return path.Base(e.Request.URL.Path) }

// Again makes the request of another server, or relay.
func (e *Exchange) Again(client *http.Client, address string) (*http.Response, []byte, error) {
	q, err := http.NewRequest(e.Request.Method, address+e.Request.URL.Path, bytes.NewReader(e.Body))
	if err != nil {
		return nil, nil, err
	}
	q.Header = e.Request.Header.Clone()
	response, err := client.Do(q)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(response.Body)
	if closed := response.Body.Close(); err == nil {
		err = closed
	}
	return response, body, err
}
