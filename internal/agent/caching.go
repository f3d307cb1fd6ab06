package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/diskcache"
)

var (
	metricCacheReads  = prometheus.NewDesc("atys_cache_reads_total", "Look-ups of unwinding tables and names in the cache on disk: found (hit), not there (miss), there but damaged, of another version or of another user (unusable, also a miss).", []string{"result"}, nil)
	metricCacheWrites = prometheus.NewDesc("atys_cache_writes_total", "Entries that were written to the cache on disk (ok), and that could not be (failed).", []string{"result"}, nil)
	metricCacheEvicts = prometheus.NewDesc("atys_cache_evictions_total", "Entries that were removed to keep the cache within --cache-size.", nil, nil)
	metricCacheBytes  = prometheus.NewDesc("atys_cache_bytes", "Size of the cache on disk, as far as known: it is counted when entries are evicted.", nil, nil)
)

// describeCache lists the metrics of the cache on disk.
func describeCache(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricCacheReads, metricCacheWrites, metricCacheEvicts, metricCacheBytes} {
		to <- d
	}
}

// collectCache reports what the cache on disk did.
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
