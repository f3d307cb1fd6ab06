package simulation

import (
	"fmt"
	"math"
)

// Figures that the prose of the paper has, which is all that our copy does.
const (
	PaperLeast    = 0.7869 // figure 11: of 1,000 results
	PaperGreatest = 0.8092
	paperSingle   = 0.004  // 5.2.1: the variance at n = 1, at 80% and granularity 30
	paperLargest  = 0.25   // 3.5: the greatest variance
	paperBeyond   = 0.0228 // 3.5: misestimating by more than one unit, at most
	paperTask1    = 0.3432 // 5.3: real shares at n = 500
	paperTask4    = 0.5560
)

// Claim is a figure of the paper's prose, and what it turns out to be.
type Claim struct {
	Where string `json:"where"`
	Paper string `json:"paper"`
	Ours  string `json:"ours"`
}

func (r *Report) claims() []Claim {
	return append([]Claim{r.single(), largest(), beyond(), r.range11(), r.realShares500(), sameEffect()}, missing()...)
}

// single is about a figure that cannot be what it is called.
func (r *Report) single() Claim {
	m := Model{30, interval, 0}
	variance := m.MeanVariance(0.8, 1)
	all := allUnits / interval
	return Claim{"Section 5.2.1", fmt.Sprintf("\"the variance of 80%% utilization when running granularity is 30 equals %v\" with one sample", paperSingle),
		fmt.Sprintf("not a variance of single samples: each is 0 or 1, so theirs is 0.8*0.2 = %.2f (simulated: %.3f). "+
			"It is, to the one digit given, the standard deviation of a mean of %d samples: sqrt(%.2f/%d) = %.4f. "+
			"Our copy does not tell how it came there",
			variance, r.variance(SingleSample, 0.8, 30), all, variance, all, math.Sqrt(variance/float64(all)))}
}

func largest() Claim {
	m := Model{interval / 2, interval, 0}
	return Claim{"Section 3.5", fmt.Sprintf("the greatest variance is %v", paperLargest),
		fmt.Sprintf("so it is, of the samples that hit one stretch, frac(R)(1-frac(R)), at frac(R) = 0.5: %.2f; and of one sample, share(1-share), at a share of 0.5: %.2f",
			m.CountVariance(), m.MeanVariance(0.5, 1))}
}

func beyond() Claim {
	tail := normal(-1 / math.Sqrt(paperLargest))
	return Claim{"Section 3.5", fmt.Sprintf("the probability of misestimating by more than one unit is less than %v", paperBeyond),
		fmt.Sprintf("that is the normal distribution beyond 1/sqrt(%v) = 2 deviations, on one side: %.5f; on both sides it is %.5f. "+
			"Of a single stretch the truth is better: the samples that hit it are floor(R) or ceil(R), never a whole unit off",
			paperLargest, tail, 2*tail)}
}

// range11 asks which design of the simulation spreads as far as figure 11.
func (r *Report) range11() Claim {
	ours := ""
	for _, row := range r.Rows {
		if len(row.Deciles) > 0 {
			ours += fmt.Sprintf("%s: %.4f to %.4f, which is %.4f; ", row.Design, row.Min, row.Max, row.Max-row.Min)
		}
	}
	m := Model{30, interval, 0}
	one := math.Sqrt(m.ErrorVariance(0.8, allUnits/interval))
	width := PaperGreatest - PaperLeast
	return Claim{"Figure 11", fmt.Sprintf("the least of 1,000 results is %v, the greatest %v: a width of %.4f", PaperLeast, PaperGreatest, width),
		ours + fmt.Sprintf("1,000 independent normal values span 6.5 deviations on average. The paper's width is %.1f of what one state gives (%.5f), "+
			"%.1f of what new states give (%.5f): either can be. A constant interval over one state has only %d different results, and spans less as a rule",
			width/one, one, width/math.Sqrt(m.MeanVariance(0.8, allUnits/interval)), math.Sqrt(m.MeanVariance(0.8, allUnits/interval)), interval)}
}

// realShares500 asks whether the real shares that the prose has can be.
func (r *Report) realShares500() Claim {
	task1, task4 := r.spread(1), r.spread(4)
	long := math.Sqrt(allUnits / shortUnits) // by so much states differ less that are as long as the other tables'
	return Claim{"Section 5.3", fmt.Sprintf("at n = 500 the real shares of tasks 1 and 4 are %.4f and %.4f", paperTask1, paperTask4),
		fmt.Sprintf("the second is impossible as printed: task 4 is set to 10%%, and over states of 500 intervals its real share is %.4f with a deviation of %.4f, "+
			"so %.4f is %.0f deviations off. If a digit was misplaced, 0.0556 is %+.1f deviations off and 0.0560 %+.1f, no rarer than 0.3432 is for task 1 (%+.1f of its %.4f), "+
			"which the paper mentions because it stands out. In 50,000 units 0.3432 is 572 whole stretches of 30 and 0.0560 is 10 of 280, "+
			"while 0.0556 needs a stretch that the end cuts: which was meant our copy does not tell. The states were as short as the profiles: over a million units 0.3432 would be %.0f deviations off",
			task4.Mean, task4.Deviation, paperTask4, task4.off(paperTask4), task4.off(0.0556), task4.off(0.0560),
			task1.off(paperTask1), task1.Deviation, long*task1.off(paperTask1))}
}

// sameEffect compares the two kinds of noise where they differ most.
func sameEffect() Claim {
	const n = allUnits / interval
	jittered := Model{interval, interval, 1}.ErrorVariance(0.8, n)
	return Claim{"Section 5.3", "noise of the sampling interval and noise of the unit of events have the same effect",
		fmt.Sprintf("not on the variance: of a task at 80%% and R = 1, which a constant interval measures without error, N(0, 1) on the interval gives %.2g and N(0, 1) on the unit %.2g. Neither biases",
			jittered, noiseVariance(0.8, 1, n))}
}

// missing are parameters that had to be chosen.
func missing() []Claim {
	const task, loudest = 3, 2.0 // the task whose variance is least
	mix := mixed()
	part := noiseVariance(mix[task].Share, loudest, 1) / mix.ErrorVariance(task, interval, 1)
	return []Claim{
		{"Section 5.3", "unit of events of a sample: formula " + NotInOurCopy,
			fmt.Sprintf("100 plus a draw of N(0, v); v is a variance, as 5.1.3 calls it. A share is the task's events over 100 times all samples. "+
				"The model adds share*v/(100^2*n) for it: at most %.1f%% of the variance of the tables", 100*part)},
		{"Section 5.2.2", "how long the mixed system is idle at a time: " + NotInOurCopy, fmt.Sprintf("%d units", idleGranularity)},
		{"Section 4", "noise of the sampling interval: " + NotInOurCopy + ", but that it is little",
			fmt.Sprintf("N(0, %d) on each interval of %d, in the design %q", intervalJitter, interval, Jittered)},
	}
}

// off is by how many deviations a share differs from the mean.
func (s Spread) off(share float64) float64 { return (share - s.Mean) / s.Deviation }

func (r *Report) spread(task int) Spread { return r.States[task-1] }

func (r *Report) variance(place string, share float64, granularity int) float64 {
	for _, row := range r.Rows {
		if row.Place == place && row.Share == share && row.Granularity == granularity {
			return row.Variance
		}
	}
	return math.NaN()
}
