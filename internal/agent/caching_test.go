package agent

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"atys.dev/atys/internal/diskcache"
)

// cacheOnly collects the metrics of a cache on disk.
type cacheOnly diskcache.Stats

func (c cacheOnly) Describe(to chan<- *prometheus.Desc) { describeCache(to) }
func (c cacheOnly) Collect(to chan<- prometheus.Metric) { collectCache(to, diskcache.Stats(c)) }

func TestCacheMetrics(t *testing.T) {
	c := cacheOnly{Hits: 5, Misses: 3, Damaged: 1, Written: 2, Evicted: 7, Bytes: 4096}
	want := `
# HELP atys_cache_reads_total Lookups of unwinding tables and names in the disk cache, by result: hit, miss, or unusable (damaged, of another version or another user; also counted as a miss).
# TYPE atys_cache_reads_total counter
atys_cache_reads_total{result="hit"} 5
atys_cache_reads_total{result="miss"} 3
atys_cache_reads_total{result="unusable"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "atys_cache_reads_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
