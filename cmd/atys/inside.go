package main

import (
	"net/http"
	"net/http/pprof"

	"atys.dev/atys/internal/auth"
)

// inside answers what this process itself does, below auth.InsidePath, in the
// form of Go's net/http/pprof. Who answers lets operators alone ask it.
func inside() http.Handler {
	mux := http.NewServeMux()
	for name, h := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		mux.HandleFunc("GET "+auth.InsidePath+name, h)
	}
	return mux
}
