// Package freq decides how often to sample: pure, with what was measured passed in.
//
//	what a service's functions had, window by window -> Policy.Next
//	   -> a rate for the windows to come, and why: Algorithm 1 of the paper (atys.go), or
//	      stretches in which chance explains all differences (auto.go, stretch.go), and phases
//	      that return (phase.go)
//	all windows, afterwards -> Pool -> what those of one stretch say of each (cut.go, mixed.go)
//
// What an agent's budget leaves of a rate is decided in package agent/budget.
package freq
