package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// TestCharged charges what a request takes to the store, but a stream's to nobody: it
// may wait for hours, and would own a thread meanwhile.
func TestCharged(t *testing.T) {
	account := cputime.New()
	const work = 20 * time.Millisecond
	h := charged(account, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		for began := cputime.Clock(); cputime.Clock()-began < work; {
		}
	}))
	ask := func(kind string) time.Duration {
		before := account.Spent()[cputime.Store]
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", kind)
		h.ServeHTTP(httptest.NewRecorder(), r)
		return account.Spent()[cputime.Store] - before
	}
	if took := ask("application/proto"); took < work {
		t.Errorf("a request that took %v is charged %v", work, took)
	}
	if took := ask("application/connect+proto"); took >= work {
		t.Errorf("a stream is charged %v", took)
	}
	if h := charged(nil, http.NotFoundHandler()); h == nil {
		t.Error("without an account nobody answers")
	}
}
