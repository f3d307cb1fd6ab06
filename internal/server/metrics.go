package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"atys.dev/atys/internal/health"
)

// metrics are what the server tells Prometheus of itself.
type metrics struct {
	windows  prometheus.Counter
	pushes   *prometheus.CounterVec
	answered *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	crowded  *prometheus.CounterVec

	decisions    *prometheus.CounterVec
	decidedAfter prometheus.Histogram

	ended, refusals tally // the same for Status: pushes, and requests of those who may not
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
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_decisions_total", Help: "Decisions on rates, by the policy's reason; skipped: the window was passed, for want of time; failed: it could not be read."},
			[]string{"reason"}),
		decidedAfter: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "atys_server_decision_delay_seconds", Help: "How long after the end of a window rates were decided by it.",
			Buckets: []float64{.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60}}),
	}
}

// counters are all that are registered as one.
func (m *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.windows, m.pushes, m.answered, m.refused, m.crowded, m.decisions, m.decidedAfter}
}

var (
	metricAgents = prometheus.NewDesc("atys_server_agents", "Agents that are known: heard of lately; silent, and should not be; left in order; gone, silent for hours.", []string{"state"}, nil)
	metricAiling = prometheus.NewDesc("atys_server_agents_in_condition", "Agents that report a trouble; see atys_agent_condition.", []string{"condition"}, nil)
	metricTokens = prometheus.NewDesc("atys_server_token_reload_failures_total", "Times that a file of tokens which had changed could not be read: those known before hold.", nil, nil)
)

// Describe lists what the server tells of itself; see prometheus.Collector.
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	for _, c := range s.metrics.counters() {
		c.Describe(to)
	}
	to <- metricAgents
	to <- metricAiling
	to <- metricTokens
	s.Upkeep.Describe(to)
}

// Collect gives it; see prometheus.Collector.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	for _, c := range s.metrics.counters() {
		c.Collect(to)
	}
	gauge := func(d *prometheus.Desc, n int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	if tokens := s.options.Admission.Tokens; tokens != nil {
		to <- prometheus.MustNewConstMetric(metricTokens, prometheus.CounterValue, float64(tokens.Failed()))
	}
	agents := map[string]int{}
	for _, f := range s.fleets.all() {
		f.count(agents)
	}
	for _, state := range agentStates {
		gauge(metricAgents, agents[state], state)
	}
	ailing := map[string]int{}
	for _, f := range s.fleets.all() {
		_, of := f.ailing()
		for kind, n := range of {
			ailing[kind] += n
		}
	}
	for _, kind := range health.Kinds() {
		gauge(metricAiling, ailing[string(kind)], string(kind))
	}
	s.Upkeep.Collect(to)
}

// count counts agents by whether and why they are silent.
func (f *fleet) count(agents map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.agents {
		agents[f.state(a)]++
	}
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

// refuse notes that somebody may not.
func (m *metrics) refuse(code connect.Code) {
	m.refused.WithLabelValues(code.String()).Inc()
	m.refusals.count(code.String())
}

// pushed notes how a request to keep windows ended, of which some may have been kept
// though others were refused.
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

// expose answers Prometheus: what the registry has, and which agents there are
// to ask.
func (s *Server) expose(mux *routes) {
	if s.options.Registry == nil {
		return
	}
	mux.Handle("GET /metrics", s.ownOnly(promhttp.HandlerFor(s.options.Registry, promhttp.HandlerOpts{Registry: s.options.Registry})))
	mux.HandleFunc("GET /sd/agents", s.discover)
}

// scraped is an agent in Prometheus' form of discovery over HTTP.
type scraped struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover lists the agents that can be asked for their metrics.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) {
	f, err := s.fleet(r.Context())
	if err != nil {
		s.fail(w, "list agents", err)
		return
	}
	all := f.scraped()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // who asked is gone if this fails
}

func (f *fleet) scraped() []scraped {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []scraped{} // in JSON a list, never null
	for node, a := range f.agents {
		address := a.report.GetState().GetMetricsAddress()
		if _, _, err := net.SplitHostPort(address); err != nil || a.left || f.now().Sub(a.seen) > forgetScraped {
			continue
		}
		all = append(all, scraped{Targets: []string{address}, Labels: map[string]string{"node": node, "__meta_atys_version": a.report.GetVersion()}})
	}
	slices.SortFunc(all, func(a, b scraped) int { return cmp.Compare(a.Targets[0], b.Targets[0]) })
	return all
}

// forgetScraped is how long an agent is told of that is silent: long enough for
// Prometheus to see that it is down.
const forgetScraped = 10 * time.Minute
