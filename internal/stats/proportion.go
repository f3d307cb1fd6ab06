package stats

// Proportion is the interval of a proportion of which k of n independent draws
// were hits, such that it covers at least 93.3% at every expected count, at
// most 97% where 20 or more are expected, and is at most 12.1% wider than
// mid-P's (TestProportionCovers enumerates all three). k and n need not be
// whole numbers.
//
// Counts are whole, so no interval covers 95% everywhere. Mid-P covers 95% in
// the mean and 91.3% at worst, where about 3 hits are expected; Clopper and
// Pearson cover 95% at least and are up to 23% wider. What lies between them is
// how much of the probability of the observed count is taken for tail: a half
// in mid-P, all of it in Clopper and Pearson, here ownWeight.
func Proportion(k, n float64) Interval { return enclose(k, n, level{oneTail, z}, ownWeight) }

// atNone is what ownWeight begins at.
const atNone = 0.72

// ownWeight falls evenly from atNone, where nothing was hit (or nothing
// missed), to the half of mid-P at exactBelow, from where mid-P covers enough.
//
// What was tried, of all n from 10 to 120 and some up to 10,000: the least
// coverage (always with about 3 expected), the greatest with 20 to 60 expected,
// and the greatest mean width, of mid-P's.
//
//	mid-P                             91.3%  96.7%  1
//	falling evenly from 0.66          92.8%  96.9%  1.092
//	                    0.70          93.2%  96.9%  1.111
//	                    0.72          93.3%  96.9%  1.121
//	                    0.73          93.4%  97.1%  1.125
//	                    0.80          93.7%  97.1%  1.156
//	0.66 throughout, a half above 30  92.8%  97.1%  1.092
//	0.70                              93.3%  97.1%  1.111
//	falling as exp(-k/10) from 0.75   93.3%  96.9%  1.134
//	falling as 1-(k/30)^2 from 0.72   93.5%  97.1%  1.121
//
// Taken is what keeps both bars, 93% and 97%, with the most room above the first.
func ownWeight(fewer float64) float64 {
	return half + (atNone-half)*max(0, 1-fewer/exactBelow)
}
