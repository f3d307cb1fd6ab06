package stats

import (
	"bufio"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The oracle is SciPy's incomplete beta function: testdata/midp.py wrote the
// table and says how.
func TestMidPOracle(t *testing.T) {
	f, err := os.Open("testdata/midp.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	var worstExact, worstExpanded float64
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if strings.HasPrefix(scan.Text(), "#") {
			continue
		}
		rows++
		var v [4]float64
		for i, field := range strings.Split(scan.Text(), "\t") {
			if v[i], err = strconv.ParseFloat(field, 64); err != nil {
				t.Fatal(err)
			}
		}
		k, n, low, high := v[0], v[1], v[2], v[3]
		got := MidP(k, n)
		off := max(math.Abs(got.Low-low), math.Abs(got.High-high)) / (high - low)
		limit, worst := 1e-6, &worstExact
		if math.Min(k, n-k) > exactBelow {
			limit, worst = 0.003, &worstExpanded
		}
		*worst = max(*worst, off)
		if !(off <= limit) {
			t.Errorf("MidP(%v, %v) = [%v, %v], want [%v, %v]: off by %.2g of the width", k, n, got.Low, got.High, low, high, off)
		}
	}
	if rows < 200 {
		t.Errorf("%d rows of the oracle's table, want more than 200", rows)
	}
	t.Logf("worst error, as a part of the width: exact %.2g, expanded %.2g", worstExact, worstExpanded)
}

func BenchmarkMidP(b *testing.B) {
	for _, c := range []struct {
		name string
		k, n float64
	}{{"0of500", 0, 500}, {"0.7of500", 0.7, 500}, {"1of500", 1, 500}, {"5of500", 5, 500}, {"30of500", 30, 500}, {"39of50000", 39, 50000},
		{"200of500", 200, 500}, {"20000of50000", 20000, 50000}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				MidP(c.k, c.n)
			}
		})
	}
}
