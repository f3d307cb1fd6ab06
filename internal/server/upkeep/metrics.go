package upkeep

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/store"
)

var (
	metricBytes    = prometheus.NewDesc("atys_server_store_bytes", "Bytes of the disk that a tenant uses: windows by level, stacks, and windows that arrived recently.", []string{"tenant", "of"}, nil)
	metricMeasured = prometheus.NewDesc("atys_server_store_measured_timestamp_seconds", "When a tenant's bytes of the disk were measured.", []string{"tenant"}, nil)
	metricQuota    = prometheus.NewDesc("atys_server_quota_bytes", "Bytes that a tenant may use.", []string{"tenant"}, nil)
	metricStale    = prometheus.NewDesc("atys_server_stale_steps", "Steps that wait to be rolled up.", []string{"level"}, nil)
)

// Describe lists the metrics of the store; see prometheus.Collector.
func (u *Upkeep) Describe(to chan<- *prometheus.Desc) {
	u.rolled.Describe(to)
	u.droppedBytes.Describe(to)
	for _, d := range []*prometheus.Desc{metricStale, metricBytes, metricMeasured, metricQuota} {
		to <- d
	}
}

// Collect collects them; see prometheus.Collector. The store logs its own errors.
func (u *Upkeep) Collect(to chan<- prometheus.Metric) {
	u.rolled.Collect(to)
	u.droppedBytes.Collect(to)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	tenants, err := u.options.Store.Tenants(ctx)
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	waiting := map[store.Level]int64{}
	for _, tenant := range tenants {
		stale, err := u.options.Store.Stale(ctx, tenant)
		if err != nil {
			return
		}
		for _, step := range stale {
			waiting[step.Level]++
		}
		if last, ok := u.usage.last(tenant); ok {
			for level, of := range last.usage.Levels {
				gauge(metricBytes, of.Bytes, tenant, level.String())
			}
			gauge(metricBytes, last.usage.Records.Bytes, tenant, "records")
			gauge(metricBytes, last.usage.Stacks, tenant, "stacks")
			gauge(metricBytes, last.usage.Recent, tenant, "recent")
			gauge(metricMeasured, last.at.Unix(), tenant)
		}
		if quota := u.options.Quotas.Of(tenant).Bytes; quota > 0 {
			gauge(metricQuota, quota, tenant)
		}
	}
	for _, level := range store.RolledUp() {
		gauge(metricStale, waiting[level], level.String())
	}
}
