//go:build !race

package proc

// raceEnabled: the race detector slows us down and adds allocations.
const raceEnabled = false
