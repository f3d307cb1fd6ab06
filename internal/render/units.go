package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// scale is one step of a unit's ladder.
type scale struct {
	size   float64
	suffix string
}

var (
	secondScales = [...]scale{{1e9, " s"}, {1e6, " ms"}, {1e3, " µs"}, {1, " ns"}}
	byteScales   = [...]scale{{1 << 40, " TiB"}, {1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}, {1, " B"}}
	countScales  = [...]scale{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1, ""}}
)

// Value writes a value of a unit for people: 3 significant digits and the
// scale that suits. viewer/format.js writes the same.
func Value(v float64, unit string) string {
	ladder, suffix := countScales[:], ""
	switch unit {
	case "nanoseconds", "ns":
		ladder = secondScales[:]
	case "microseconds", "us":
		v, ladder = v*1e3, secondScales[:]
	case "milliseconds", "ms":
		v, ladder = v*1e6, secondScales[:]
	case "seconds", "s":
		v, ladder = v*1e9, secondScales[:]
	case "bytes":
		ladder = byteScales[:]
	case "count", "samples", "":
	default:
		suffix = " " + Printable(unit)
	}
	if v < 0 {
		return "-" + ladderValue(-v, ladder) + suffix
	}
	return ladderValue(v, ladder) + suffix
}

func ladderValue(v float64, ladder []scale) string {
	last := len(ladder) - 1
	if v == 0 {
		return "0" + ladder[last].suffix
	}
	i := 0
	for i < last && v < ladder[i].size {
		i++
	}
	v /= ladder[i].size
	if i == last || v >= 1000 {
		return Count(int64(math.Round(v))) + ladder[i].suffix
	}
	return digits3(v) + ladder[i].suffix
}

// digits3 keeps three significant digits, never rounding away whole ones.
func digits3(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Count writes a whole number with its thousands apart: 1,234,567.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	for i := range len(s) {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(s[i])
	}
	return sign + b.String()
}

// Share writes a fraction as a percentage of about three digits.
func Share(f float64) string {
	p := f * 100
	switch a := math.Abs(p); {
	case a == 0:
		return "0%"
	case a >= 99.95:
		return strconv.FormatFloat(p, 'f', 0, 64) + "%"
	case a >= 9.995:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	case a >= 0.0995:
		return strconv.FormatFloat(p, 'f', 2, 64) + "%"
	case a >= 0.0005:
		return strconv.FormatFloat(p, 'f', 3, 64) + "%"
	case p < 0:
		return ">-0.001%"
	}
	return "<0.001%"
}

// shareInterval writes an interval of a share, as 10.1–14.6%.
func shareInterval(lo, hi float64) string {
	d := intervalDigits(hi)
	return fmt.Sprintf("%.*f–%.*f%%", d, lo*100, d, hi*100)
}

// changeInterval writes an interval of a difference of shares: signs tell its direction.
func changeInterval(lo, hi float64) string {
	d := intervalDigits(max(math.Abs(lo), math.Abs(hi)))
	return fmt.Sprintf("%+.*f to %+.*f pp", d, lo*100+0, d, hi*100+0) // +0: no minus before zero
}

func intervalDigits(size float64) int {
	switch {
	case size >= 0.0995:
		return 1
	case size >= 0.00995:
		return 2
	}
	return 3
}

// changeText writes a difference of shares in percentage points.
func changeText(d float64) string {
	if d == 0 {
		return "0 pp"
	}
	return fmt.Sprintf("%+.*f pp", intervalDigits(math.Abs(d)), d*100)
}

func span(d time.Duration) string { return Value(float64(d), "nanoseconds") }
