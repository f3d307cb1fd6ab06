package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits are those of amounts of bytes, longer names before their ends.
var byteUnits = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// ParseBytes reads an amount of bytes with its unit, such as 256MB, 1.5 GiB, or 0.
func ParseBytes(text string) (int64, error) {
	number := strings.TrimSpace(text)
	if number == "0" {
		return 0, nil
	}
	for _, unit := range byteUnits {
		rest, ok := strings.CutSuffix(number, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
		if bytes := n * unit.bytes; err == nil && bytes >= 0 && bytes < math.MaxInt64 {
			return int64(bytes), nil
		}
		break
	}
	return 0, fmt.Errorf("%q: want a number of kB, MB, GB or TB, of KiB, MiB, GiB or TiB, such as 256MB, or 0", text)
}
