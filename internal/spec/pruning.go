package spec

import (
	"fmt"
	"regexp"
	"strconv"
)

// Of how many percent of the samples the threads may be kept. Below it the largest
// functions are off by more than anybody can use.
const (
	minPruning, maxPruning = 80, 100
	pruningPrefix          = "P"
)

var pruningRule = regexp.MustCompile(`^` + pruningPrefix + `([0-9]{2,3}(?:\.[0-9]{1,6})?)$`)

// ParsePruning reads of how many percent of the samples the threads are kept, as the
// paper of Atys writes it: P99.
func ParsePruning(text string) (percent float64, err error) {
	if found := pruningRule.FindStringSubmatch(text); found != nil {
		percent, err = strconv.ParseFloat(found[1], 64)
	}
	if err != nil || percent < minPruning || percent > maxPruning {
		return 0, fmt.Errorf("%.80q: want P%d to P%d, such as P99 or P99.9: the threads that make up 99%% of the samples are kept", text, minPruning, maxPruning)
	}
	return percent, nil
}
