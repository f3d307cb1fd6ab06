package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
)

// Refusals of recordings that tell too little.
var (
	ErrTooShort = errors.New("it is too short")
	ErrTooSlow  = errors.New("it was recorded too slowly")
	ErrTooFew   = errors.New("too few samples to compare with")
)

// Result is what a candidate came to.
type Result struct {
	Candidate
	Hertz float64 // samples of a second of CPU time: what it costs
	Error float64 // of the largest functions' shares, in each step: root of the mean square
	Doubt float64 // the standard error of that
}

// Replay has candidates choose rates for a stream that is thinned to what they choose.
//
// A rate that was decided by a window holds from the window after the next on: while
// the server decides, the next one runs already. Policies first go to and fro over
// the stream, as over that of a service that has run for long, since theirs is the
// highest rate at first; costs and errors are of one pass behind that. Going back
// where the stream ends has no change there that was none.
//
// What is known of a window's shares is then, of a fixed rate, what the window says; of
// policy atys freq.Substitute's estimate, as in its paper; of policy auto freq.Pool's.
// It is compared with the reference in each step, of the shortest windows there are:
// long ones, which have more samples, pay for what they do not tell apart. The
// reference's own variance is taken off the mean square, which for a mean of absolute
// differences would not be possible.
func Replay(ctx context.Context, s *Stream, candidates []Candidate, repetitions int, seed uint64) ([]Result, error) {
	steps, err := common(s, candidates)
	if err != nil {
		return nil, err
	}
	found := make([][]score, len(candidates))
	for repetition := range repetitions {
		rng := rand.New(rand.NewPCG(seed, uint64(repetition)))
		r := &replay{stream: s, divided: divide(rng, s), rng: rng, steps: steps, top: s.largest(freq.DefaultTop)}
		for i, c := range candidates {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			found[i] = append(found[i], r.run(c))
		}
	}
	results := make([]Result, len(candidates))
	for i, c := range candidates {
		if results[i], err = resultOf(c, found[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// common is the number of steps that windows of all candidates can be made of, none
// being left over: all are compared in the same.
func common(s *Stream, candidates []Candidate) (steps int, err error) {
	multiple := 1
	for _, c := range candidates {
		n := int(c.Window / s.Step)
		if n < 1 || c.Window%s.Step != 0 {
			return 0, fmt.Errorf("windows of %v cannot be made of steps of %v", c.Window, s.Step)
		}
		multiple *= n / divisor(multiple, n)
	}
	if steps = len(s.Counts) / multiple * multiple; steps == 0 {
		return 0, fmt.Errorf("%w: %v, and windows of all lengths fit into %v", ErrTooShort, s.Length(), time.Duration(multiple)*s.Step)
	}
	return steps, nil
}

func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// replay is one repetition.
type replay struct {
	stream  *Stream
	divided *divided
	rng     *rand.Rand
	steps   int
	top     []int // functions whose shares are looked at
}

// score is what one repetition came to.
type score struct {
	samples, cpu float64
	squares      float64
	compared     float64 // shares
}

// window is one that was sampled.
type window struct {
	freq.Window
	from, to int // steps
	shares   []float64
}

// warming is for how many windows policies go to and fro before they are judged: from
// 999 to 19 Hz by 0.9, five windows each, takes 190.
const warming = 200

func (r *replay) run(c Candidate) score {
	length := int(c.Window / r.stream.Step)
	policy, hertz, next := policyOf(c), c.Max, c.Max
	pass := func(back bool) (windows []window) {
		for i := range r.steps / length {
			if back {
				i = r.steps/length - 1 - i
			}
			w := r.sample(i*length, (i+1)*length, hertz)
			if policy != nil {
				hertz, next = next, policy.Next(w.Window).Hertz
			}
			windows = append(windows, w)
		}
		return windows
	}
	var before []window
	if policy != nil {
		for done := 0; done < warming; done += 2 * r.steps / length {
			pass(false)
			before = pass(true)
		}
	}
	windows := pass(false)
	return r.judge(windows, estimates(c, before, windows, len(r.top)))
}

func policyOf(c Candidate) freq.Policy {
	if c.Policy == Fixed {
		return nil
	}
	return freq.New(c.Options)
}

// sample takes samples of steps [from, to) at a rate.
func (r *replay) sample(from, to int, hertz float64) window {
	counts := thin(r.rng, summed(r.divided.rest, from, to), 2*hertz/r.stream.Hertz)
	return window{Window: r.stream.window(from, to, hertz, counts), from: from, to: to, shares: r.shares(counts)}
}

// shares are those of the functions that are looked at; nothing where there are no samples.
func (r *replay) shares(counts []float64) []float64 {
	shares, n := make([]float64, len(r.top)), sum(counts)
	for i, place := range r.top {
		if n > 0 {
			shares[i] = counts[place] / n
		}
	}
	return shares
}

// estimates are what is known of each window's shares in the end.
func estimates(c Candidate, before, windows []window, functions int) [][]float64 {
	switch c.Policy {
	case freq.Atys:
		all := slices.Concat(before, windows) // the first ones may stand for those behind
		return pooled(all, functions, freq.Substitute(told(all), c.Options))[len(before):]
	case freq.Auto:
		return pooled(windows, functions, freq.Pool(told(windows), c.Options))
	}
	own := make([][]float64, len(windows))
	for i, w := range windows {
		own[i] = w.shares
	}
	return own
}

func told(windows []window) []freq.Window {
	all := make([]freq.Window, len(windows))
	for i, w := range windows {
		all[i] = w.Window
	}
	return all
}

func pooled(windows []window, functions int, p *freq.Pooled) [][]float64 {
	all := make([][]float64, len(windows))
	for i := range all {
		all[i] = make([]float64, functions)
	}
	own := make([][]float64, len(windows))
	for f := range functions {
		for i, w := range windows {
			own[i] = w.shares[f : f+1]
		}
		shares, _ := p.Shares(own)
		for i, share := range shares {
			all[i][f] = share
		}
	}
	return all
}

// judge compares estimates with the reference, step by step.
func (r *replay) judge(windows []window, estimates [][]float64) (s score) {
	for i, w := range windows {
		cpu := sum(summed(r.stream.Counts, w.from, w.to)) / r.stream.Hertz
		s.samples, s.cpu = s.samples+w.Hertz*cpu, s.cpu+cpu
		for _, reference := range r.divided.reference[w.from:w.to] {
			n := sum(reference)
			if n < 2 {
				continue
			}
			for f, share := range r.shares(reference) {
				off := estimates[i][f] - share
				s.squares += off*off - share*(1-share)/(n-1)
				s.compared++
			}
		}
	}
	return s
}

// resultOf is the mean of repetitions.
func resultOf(c Candidate, scores []score) (Result, error) {
	var samples, cpu, mean, squares float64
	n := float64(len(scores))
	for _, s := range scores {
		if s.compared == 0 || s.cpu == 0 {
			return Result{}, ErrTooFew
		}
		samples, cpu, mean = samples+s.samples, cpu+s.cpu, mean+s.squares/s.compared/n
	}
	for _, s := range scores {
		off := s.squares/s.compared - mean
		squares += off * off
	}
	r := Result{Candidate: c, Hertz: samples / cpu, Error: math.Sqrt(max(mean, 0))}
	if deviation := math.Sqrt(squares / max(n-1, 1) / n); r.Error > 0 {
		r.Doubt = min(deviation/(2*r.Error), r.Error)
	}
	return r, nil
}
