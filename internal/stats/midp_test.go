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
	rows := readTable(t, "testdata/midp.tsv", 4)
	if len(rows) < 200 {
		t.Errorf("%d rows of the oracle's table, want more than 200", len(rows))
	}
	var worstExact, worstExpanded float64
	for _, v := range rows {
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
	t.Logf("worst error, as a part of the width: exact %.2g, expanded %.2g", worstExact, worstExpanded)
}

// readTable reads an oracle's table of so many numbers a row.
func readTable(t *testing.T, path string, columns int) (rows [][]float64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		if strings.HasPrefix(scan.Text(), "#") {
			continue
		}
		row := make([]float64, columns)
		fields := strings.Split(scan.Text(), "\t")
		if len(fields) != columns {
			t.Fatalf("%s: %q has %d columns, want %d", path, scan.Text(), len(fields), columns)
		}
		for i, field := range fields {
			if row[i], err = strconv.ParseFloat(field, 64); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, row)
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
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
