package auth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAtOnce answers no more at once than it may, and all in the end.
func TestAtOnce(t *testing.T) {
	const most, all = 2, 10
	begun, goOn, ended := make(chan bool, all), make(chan bool), make(chan bool, all)
	h := AtOnce(most, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-goOn
	}))
	for range all {
		go func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
			ended <- true
		}()
	}
	for range most {
		<-begun
	}
	select {
	case <-begun:
		t.Error("one more is answered at once")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	for range all {
		<-ended
	}
}

// TestAtOnceIsLeft has those who no longer wait go, and panics be told to who asked.
func TestAtOnceIsLeft(t *testing.T) {
	goOn, begun := make(chan bool), make(chan bool)
	h := AtOnce(1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("of a handler")
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/wait":
			begun <- true
			<-goOn
		}
	}))
	ask := func(ctx context.Context, path string) (panicked any) {
		defer func() { panicked = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, path, nil))
		return nil
	}
	if p, ok := ask(t.Context(), "/panic").(string); !ok || !strings.HasPrefix(p, "of a handler\n") || !strings.Contains(p, "atonce_test.go") {
		t.Errorf("%v was thrown", p)
	}
	if p := ask(t.Context(), "/abort"); p != http.ErrAbortHandler {
		t.Errorf("%v was thrown", p)
	}
	waited := make(chan any)
	go func() { waited <- ask(t.Context(), "/wait") }()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if p := ask(ctx, "/panic"); p != nil {
		t.Errorf("who waits no more was answered: %v", p)
	}
	close(goOn)
	if p := <-waited; p != nil {
		t.Errorf("%v was thrown", p)
	}
	if p := ask(t.Context(), "/"); p != nil {
		t.Errorf("%v was thrown", p)
	}
}
