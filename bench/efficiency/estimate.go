package main

import "atys.dev/atys/internal/freq"

// estimator says how shares of windows are made of what was sampled in all of them: told
// what a policy was told of each, it gives a function that takes a function's share of
// each window by its own samples, and makes the best of them.
type estimator func(told []freq.Window, o freq.Options) func(own []float64) []float64

// way is an estimator with its name.
type way struct {
	name     string
	estimate estimator
}

// ways are what is made of a policy's windows, a row each; windows of fixed rates stand for themselves.
func ways(policy *freq.Options) []way {
	all := []way{{"alone", alone}}
	if policy == nil {
		return all
	}
	if policy.Policy == freq.Atys {
		all = append(all, way{"substituted", substituted})
	}
	return append(all, way{"pooled", pooled})
}

// alone has each window stand for itself.
func alone([]freq.Window, freq.Options) func([]float64) []float64 {
	return func(own []float64) []float64 { return own }
}

// substituted is the paper's way.
func substituted(told []freq.Window, o freq.Options) func([]float64) []float64 {
	return shares(freq.Substitute(told, o))
}

// pooled is what an answer of the server says once its windows are final.
func pooled(told []freq.Window, o freq.Options) func([]float64) []float64 {
	return shares(freq.Pool(told, o))
}

func shares(p *freq.Pooled) func([]float64) []float64 {
	return func(own []float64) []float64 {
		shares, _ := p.Shares(own)
		return shares
	}
}
