// Package calibrate finds, from one recording at a high rate, how much pruning a service bears and how often it is best sampled: the initialization stage of the paper of Atys (5.3).
//
//	what levels of pruning were measured to do -> T(p), MAPE(p) (fit.go) -> the most that an error allows
//	samples with their times, or windows of a fleet -> steps (stream.go)
//	   -> divided at random into a reference, and what is sampled from (divide.go)
//	   -> each candidate, window by window as a server has them (replay.go) -> its cost and error
//	   -> the frontier, and which to take (choose.go)
//	both together (calibration.go) -> a profile to be applied (propose.go), or why there is none
package calibrate
