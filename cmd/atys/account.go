package main

import (
	"context"
	"net/http"
	"strings"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/server"
	"atys.dev/atys/internal/wire/atysv1"
)

// chargedServer is the server of this process, as its agent calls it: what that takes
// is charged to the store.
type chargedServer struct {
	*server.Server
	account *cputime.Account
}

func (s chargedServer) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	defer s.account.Begin(cputime.Store)()
	return s.Server.Push(ctx, r)
}

func (s chargedServer) Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	defer s.account.Begin(cputime.Store)()
	return s.Server.Report(ctx, r)
}

// mostCharged is how many requests may own a thread each, to be charged, at a time.
const mostCharged = 32

// charged charges what requests take to the store. Streams, which wait most of the
// time, and what comes while many are answered is charged to nobody.
func charged(account *cputime.Account, h http.Handler) http.Handler {
	if account == nil {
		return h
	}
	free := make(chan struct{}, mostCharged)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.Header.Get("Content-Type")
		if strings.HasPrefix(kind, "application/connect+") || strings.HasPrefix(kind, "application/grpc") {
			h.ServeHTTP(w, r)
			return
		}
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
			defer account.Begin(cputime.Store)()
		default:
		}
		h.ServeHTTP(w, r)
	})
}
