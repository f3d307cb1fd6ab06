package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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

// serveMetrics answers Prometheus at an address until what it gives is called.
func serveMetrics(address string, r *prometheus.Registry, log *slog.Logger) (end func() error, at string, err error) {
	l, err := listenLocally("--metrics", address)
	if err != nil {
		return nil, "", err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // whoever asked is gone if this fails
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return func() error {
		err := s.Close()
		if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	}, l.Addr().(*net.TCPAddr).String(), nil
}
