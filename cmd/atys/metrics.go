package main

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"atys.dev/atys/internal/auth"
)

// newRegistry has what Prometheus is told of this process, and more.
func newRegistry(more ...prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "atys_build_info", Help: "1; the label says which version this is.",
		ConstLabels: prometheus.Labels{"version": version()}})
	build.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	r.MustRegister(more...)
	return r
}

// serveMetrics answers Prometheus, as a reader of a tenant, and operators who look
// into this process, until what it gives is called.
func serveMetrics(f listenFlags, tenant string, r *prometheus.Registry, log *slog.Logger) (end func() error, at string, err error) {
	d, err := f.open("--metrics", log)
	if err != nil {
		return nil, "", err
	}
	gate := &auth.Gate{Tokens: d.tokens, Limit: d.limit, Needs: func(r *http.Request) auth.Role {
		switch {
		case r.URL.Path == "/healthz":
			return ""
		case strings.HasPrefix(r.URL.Path, auth.InsidePath):
			return auth.Operator
		}
		return auth.Reader
	}}
	if d.local {
		gate.Local = &auth.Identity{Tenant: tenant, Role: auth.Reader}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", ownOnly(tenant, promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r})))
	mux.Handle("GET "+auth.InsidePath, ownOnly(tenant, inside()))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // whoever asked is gone if this fails
	})
	leave, err := d.admitOperator(tenant, auth.NewToken())
	if err != nil {
		return nil, "", errors.Join(err, d.listener.Close())
	}
	s := httpServer(auth.Patient(auth.Guard(nil, d.local, gate.Wrap(mux))), log)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(d.listener) }()
	return func() error {
		leave()
		err := s.Close()
		if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	}, d.listener.Addr().String(), nil
}

// ownOnly answers those of one tenant: a file of tokens may be that of many.
func ownOnly(tenant string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, ok := auth.From(r.Context()); !ok || who.Tenant != tenant {
			http.Error(w, "this is told to tenant "+tenant+" alone", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
