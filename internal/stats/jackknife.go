package stats

import (
	"fmt"
	"math"
)

// Clusters are a part and its whole, by instances that have nothing to do with each
// other or, of many, by groups of them.
type Clusters struct {
	Part, Whole []float64
	Apart       bool // each is one instance, and no group of several
	// Recorded of Eligible instances were recorded, at random; 0 and 0: those that
	// there are stand for any number.
	Recorded, Eligible int
}

// fewestGroups are needed to tell how much groups differ: what two tell is off
// by any factor.
const fewestGroups = 3

// ServiceShare is the share that a part has in the service: of all its instances,
// of which some were recorded. It knows how much instances differ by how much they
// do, or groups of them, which Share, of sampling alone, does not. In place of an
// interval it may say why there is none.
//
// Instances by themselves tell more than groups of them do (bench/service), and
// thirty of them little more than eight groups.
//
// The variance is the jackknife's that leaves out a group at a time, for groups
// of any size: what a group has beside its part of the whole, squared, over what
// it has left to differ by. It comes with fewer degrees of freedom the more one
// group outweighs others; with groups of one size it is the plain jackknife,
// which has one less than there are groups.
//
// Bounds are as far apart as log odds have it, so that they stay within 0 and 1.
//
// What is sampled of instances that are all recorded does not differ for another
// choice of instances: only that part of the variance counts which is of those
// that were not (the finite-population factor), and what sampling adds. The
// interval is never narrower than selection, which is Share's.
func (c Clusters) ServiceShare(selection Interval) (i Interval, why string) {
	sumPart, sumWhole, groups := 0.0, 0.0, 0
	for g, w := range c.Whole {
		if w > 0 {
			groups++
			sumPart, sumWhole = sumPart+c.Part[g], sumWhole+w
		}
	}
	switch {
	case c.Eligible > 0 && c.Recorded < fewestGroups:
		return Interval{}, fmt.Sprintf("%d of %d instances recorded: how instances differ is known from %d on", c.Recorded, c.Eligible, fewestGroups)
	case groups < fewestGroups:
		return Interval{}, fmt.Sprintf("%d instances, or groups of them, have samples: how instances differ is known from %d on", groups, fewestGroups)
	}
	share := sumPart / sumWhole
	variance, freedom := c.between(share, sumWhole)
	if c.Apart {
		variance += c.hidden(variance-samplingOf(selection), sumWhole)
	}
	variance, freedom = c.ofOthers(variance, freedom, selection)
	low, high := aroundLogit(share, studentQuantile(freedom)*math.Sqrt(variance))
	return Interval{share, min(low, selection.Low), max(high, selection.High)}, ""
}

// aroundLogit are bounds of a share by its log odds, which half becomes part of.
// What few instances do much of is skewed: an interval as far below as above
// covered 91% of it where this one covers 95 (bench/service).
func aroundLogit(share, half float64) (low, high float64) {
	if share <= 0 || share >= 1 {
		return share, share
	}
	odds, factor := share/(1-share), math.Exp(half/(share*(1-share)))
	return odds / (odds + factor), 1 / (1 + 1/(odds*factor))
}

// between is the variance of a share by how groups differ, and its degrees of
// freedom (Bell and McCaffrey 2002, for a mean: CR2 with Satterthwaite's).
func (c Clusters) between(share, sumWhole float64) (variance, freedom float64) {
	var squares, linked, diagonal float64
	for g, w := range c.Whole {
		if w <= 0 {
			continue
		}
		part := w / sumWhole
		residual := (c.Part[g] - share*w) / sumWhole
		variance += residual * residual / (1 - part)
		link := part * part / (1 - part)
		squares += part * part
		linked += link
		diagonal += link * link
	}
	return variance, 1 / (squares + linked*linked - diagonal)
}

// hidden is what a variance lacks of what instances differ by, where it has so much
// of it. A large instance pulls the share to its own, so that it seems to differ by
// less. For what samples differ by, which grows with an instance's size, between
// makes up for that; for what instances do, which grows with its square, not enough:
// of 29 that were unlike in size intervals covered 92.6% (bench/service). Groups have
// sizes by how many instances they are of, and are as samples are.
func (c Clusters) hidden(variance, sumWhole float64) float64 {
	var squares, found float64
	for _, w := range c.Whole {
		part := w / sumWhole
		squares += part * part
	}
	for _, w := range c.Whole {
		part := w / sumWhole
		found += part * part * (1 - 2*part + squares) / (1 - part)
	}
	return max(variance, 0) * (squares/found - 1)
}

// samplingOf is the variance of a share that is due to sampling, by its interval.
func samplingOf(selection Interval) float64 { return math.Pow(selection.Width()/(2*z), 2) }

// ofOthers takes off a variance the part of the instances that were recorded, but
// for what sampling adds, of which is known how much it is.
func (c Clusters) ofOthers(variance, freedom float64, selection Interval) (float64, float64) {
	if c.Eligible <= 0 || variance == 0 {
		return variance, freedom
	}
	recorded := min(float64(c.Recorded)/float64(c.Eligible), 1)
	others := (1 - recorded) * variance
	sum := others + recorded*min(samplingOf(selection), variance)
	return sum, freedom * math.Pow(sum/others, 2) // Satterthwaite's: only the others' is estimated
}

// tQuantiles are Student's at 97.5%, by degrees of freedom from 1 on.
var tQuantiles = [...]float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646}

// studentQuantile is Student's at 97.5%, of one degree of freedom or more: of
// few by the table, with those in between on a line in 1/freedom, of more by the
// expansion around the normal one (Abramowitz and Stegun 26.7.5).
func studentQuantile(freedom float64) float64 {
	freedom = max(freedom, 1)
	last := float64(len(tQuantiles))
	if freedom >= last {
		v := freedom
		return z + (z*z*z+z)/(4*v) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*v*v) +
			(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*v*v*v) +
			(79*math.Pow(z, 9)+776*math.Pow(z, 7)+1482*math.Pow(z, 5)-1920*z*z*z-945*z)/(92160*v*v*v*v)
	}
	below := math.Floor(freedom)
	low, high := tQuantiles[int(below)-1], tQuantiles[int(below)]
	return low + (high-low)*(1/below-1/freedom)/(1/below-1/(below+1))
}
