package server

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/server/fleet"
)

// metrics are the metrics of the server itself; upkeep and decider have their own.
type metrics struct {
	windows  prometheus.Counter
	pushes   *prometheus.CounterVec
	answered *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	crowded  *prometheus.CounterVec

	ended, refusals tally // for Status: pushes and refused requests
}

func newMetrics() *metrics {
	return &metrics{
		windows: prometheus.NewCounter(prometheus.CounterOpts{Name: "atys_server_windows_total", Help: "Windows that were kept."}),
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_pushes_total", Help: "Requests to keep windows, by how they ended."},
			[]string{"code"}),
		answered: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "atys_server_answer_seconds", Help: "How long requests took that do not stay.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}, []string{"request"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_refused_total", Help: "Requests of those who may not, by why."},
			[]string{"code"}),
		crowded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_over_quota_total", Help: "Requests to keep windows of tenants that had as many bytes as they may; agents send again."},
			[]string{"tenant"}),
	}
}

// counters lists all that are collected.
func (m *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.windows, m.pushes, m.answered, m.refused, m.crowded}
}

var (
	metricAgents = prometheus.NewDesc("atys_server_agents", "Agents that are known: heard of lately; silent, and should not be; left in order; gone, silent for hours.", []string{"state"}, nil)
	metricAiling = prometheus.NewDesc("atys_server_agents_in_condition", "Agents that report a trouble; see atys_agent_condition.", []string{"condition"}, nil)
	metricTokens = prometheus.NewDesc("atys_server_token_reload_failures_total", "Times that a file of tokens which had changed could not be read: those known before hold.", nil, nil)
)

// Describe lists the metrics of the server; see prometheus.Collector.
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	for _, c := range append(s.metrics.counters(), s.Decider.Collectors()...) {
		c.Describe(to)
	}
	to <- metricAgents
	to <- metricAiling
	to <- metricTokens
	s.Upkeep.Describe(to)
}

// Collect collects them; see prometheus.Collector.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	for _, c := range append(s.metrics.counters(), s.Decider.Collectors()...) {
		c.Collect(to)
	}
	gauge := func(d *prometheus.Desc, n int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	if tokens := s.options.Admission.Tokens; tokens != nil {
		to <- prometheus.MustNewConstMetric(metricTokens, prometheus.CounterValue, float64(tokens.Failed()))
	}
	agents, ailing := map[string]int{}, map[string]int{}
	for _, t := range s.tenants.all() {
		t.Count(agents)
		_, of := t.Ailing()
		for kind, n := range of {
			ailing[kind] += n
		}
	}
	for _, state := range fleet.States() {
		gauge(metricAgents, agents[state], state)
	}
	for _, kind := range health.Kinds() {
		gauge(metricAiling, ailing[string(kind)], string(kind))
	}
	s.Upkeep.Collect(to)
}

// timed measures how long requests take.
func (m *metrics) timed() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			began := time.Now()
			response, err := next(ctx, r)
			m.answered.WithLabelValues(r.Spec().Procedure).Observe(time.Since(began).Seconds())
			return response, err
		}
	})
}

// refuse counts a request that was refused.
func (m *metrics) refuse(code connect.Code) {
	m.refused.WithLabelValues(code.String()).Inc()
	m.refusals.count(code.String())
}

// pushed counts a push by its result. Some windows may have been stored though others
// were refused.
func (m *metrics) pushed(kept int, unknown bool, err error) {
	m.windows.Add(float64(kept))
	code := "ok"
	switch {
	case err != nil:
		code = connect.CodeOf(err).String()
	case unknown:
		code = "unknown_stacks"
	}
	m.pushes.WithLabelValues(code).Inc()
	m.ended.count(code)
}

// expose routes requests of Prometheus: metrics, and service discovery of agents.
func (s *Server) expose(mux *routes) {
	if s.options.Registry == nil {
		return
	}
	mux.Handle("GET /metrics", s.ownOnly(promhttp.HandlerFor(s.options.Registry, promhttp.HandlerOpts{Registry: s.options.Registry})))
	mux.HandleFunc("GET /sd/agents", s.discover)
}

// discover lists the agents that serve metrics.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) {
	f, err := s.tenants.fleet(r.Context())
	if err != nil { // it is logged
		http.Error(w, "the server could not list agents: its log says why", http.StatusInternalServerError)
		return
	}
	answerJSON(w, f.Scraped())
}
