package stats

import "math"

// tQuantiles are Student's at 97.5%, by degrees of freedom from 1 on.
var tQuantiles = [...]float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646}

// JackknifeShare is the share that a part has of a whole, with the interval that
// its groups tell: each is left out in turn. It says how much the share would
// differ with other groups of the same kind, which Share, that knows of
// sampling alone, does not. Groups of which there is nothing do not count; with
// fewer than two nothing is known.
func JackknifeShare(part, whole []float64) (i Interval, known bool) {
	var sumPart, sumWhole float64
	groups := 0
	for g, w := range whole {
		if w > 0 {
			groups++
			sumPart, sumWhole = sumPart+part[g], sumWhole+w
		}
	}
	if groups < 2 {
		return Interval{}, false
	}
	share := sumPart / sumWhole
	var without []float64
	mean := 0.0
	for g, w := range whole {
		if w > 0 {
			s := (sumPart - part[g]) / (sumWhole - w)
			without = append(without, s)
			mean += s / float64(groups)
		}
	}
	squares := 0.0
	for _, s := range without {
		squares += (s - mean) * (s - mean)
	}
	n := float64(groups)
	half := tQuantiles[min(groups-1, len(tQuantiles))-1] * math.Sqrt(squares*(n-1)/n)
	return Interval{share, max(share-half, 0), min(share+half, 1)}, true
}
