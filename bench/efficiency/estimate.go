package main

import "atys.dev/atys/internal/freq"

// estimator says what shares functions had in each window of a stream, by what was
// sampled in all of them: windows follow each other, their functions are the workload's
// and [rest].
type estimator func(windows []freq.Window) []map[string]float64

// estimators are the ways that are compared; what each makes of the streams of policies
// has a row of its own.
func estimators() []named[estimator] {
	return []named[estimator]{{"alone", alone}}
}

// named is something with a name to be printed.
type named[T any] struct {
	name string
	is   T
}

// alone has each window stand for itself.
func alone(windows []freq.Window) []map[string]float64 {
	all := make([]map[string]float64, len(windows))
	for i := range windows {
		n := windows[i].N()
		all[i] = map[string]float64{}
		for _, f := range windows[i].Functions {
			all[i][f.Name] = f.N / n
		}
	}
	return all
}
