package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/diskcache"
)

var (
	metricCacheReads  = prometheus.NewDesc("atys_cache_reads_total", "Lookups of unwinding tables and names in the disk cache, by result: hit, miss, or unusable (damaged, of another version or another user; also counted as a miss).", []string{"result"}, nil)
	metricCacheWrites = prometheus.NewDesc("atys_cache_writes_total", "Writes to the disk cache, by result: ok or failed.", []string{"result"}, nil)
	metricCacheEvicts = prometheus.NewDesc("atys_cache_evictions_total", "Entries removed to keep the disk cache within --cache-size.", nil, nil)
	metricCacheBytes  = prometheus.NewDesc("atys_cache_bytes", "Size of the disk cache, counted at start and at evictions, plus what this process has written since.", nil, nil)
)

// describeCache sends the metrics of the disk cache.
func describeCache(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricCacheReads, metricCacheWrites, metricCacheEvicts, metricCacheBytes} {
		to <- d
	}
}

// collectCache sends what the disk cache did.
func collectCache(to chan<- prometheus.Metric, s diskcache.Stats) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(metricCacheReads, s.Hits, "hit")
	count(metricCacheReads, s.Misses, "miss")
	count(metricCacheReads, s.Damaged, "unusable")
	count(metricCacheWrites, s.Written, "ok")
	count(metricCacheWrites, s.Failed, "failed")
	count(metricCacheEvicts, s.Evicted)
	to <- prometheus.MustNewConstMetric(metricCacheBytes, prometheus.GaugeValue, float64(s.Bytes))
}
