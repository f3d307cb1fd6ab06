package main

import "atys.dev/atys/internal/freq"

// estimator says how shares of windows are made of what was sampled in all of them: of a
// lane, it gives a function that makes the best of one of the workload's functions.
type estimator func(l *lane, o freq.Options) func(function int) []float64

// way is an estimator with its name.
type way struct {
	name     string
	estimate estimator
}

// inParts is the way of policy auto, whose windows tell slots apart.
const inParts = "pooled in parts"

// ways are what is made of a policy's windows, a row each; windows of fixed rates stand for themselves.
func ways(policy *freq.Options) []way {
	all := []way{{"alone", alone}}
	if policy == nil {
		return all
	}
	if policy.Policy == freq.Atys {
		all = append(all, way{"substituted", substituted})
	}
	return append(all, way{"pooled", pooled}, way{inParts, pooledInParts})
}

// alone has each window stand for itself.
func alone(l *lane, _ freq.Options) func(int) []float64 {
	return func(function int) []float64 { return l.own[function] }
}

// substituted is the paper's way.
func substituted(l *lane, o freq.Options) func(int) []float64 {
	return whole(l, freq.Substitute(l.whole(), o))
}

// pooled is what an answer says of windows that are not known in parts, once they are final.
func pooled(l *lane, o freq.Options) func(int) []float64 {
	return whole(l, freq.Pool(l.whole(), o))
}

// pooledInParts is what it says of those that are.
func pooledInParts(l *lane, o freq.Options) func(int) []float64 {
	p := freq.Pool(l.told, o)
	return func(function int) []float64 {
		shares, _ := p.Shares(l.ofParts[function])
		return shares
	}
}

// whole are windows without their parts.
func (l *lane) whole() []freq.Window {
	all := make([]freq.Window, len(l.told))
	for i, w := range l.told {
		w.Parts = nil
		all[i] = w
	}
	return all
}

func whole(l *lane, p *freq.Pooled) func(int) []float64 {
	return func(function int) []float64 {
		own := make([][]float64, len(l.own[function]))
		for i, share := range l.own[function] {
			own[i] = []float64{share}
		}
		shares, _ := p.Shares(own)
		return shares
	}
}
