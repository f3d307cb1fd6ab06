// Package doctor says what this machine, these privileges and a process allow to record, how a server and its fleet fare, and which command mends each gap.
//
// The flow:
//
//	Gather    reads facts of the machine: limits, capabilities, what can be opened
//	   -> tries what a recording does: loads every BPF program, opens its events (probe.go)
//	   -> looks at one process, if asked (process.go)
//	Evaluate  pure: facts -> checks, each with its cost and its remedy
//
//	GatherServer    asks a server of itself and its agents (fleet.go)
//	EvaluateServer  pure, as above (server.go, windows.go)
//
// A capability may be there and yet not help (a container's filter, a locked
// down kernel), so that the verdict comes from what was tried, and the
// capabilities explain it.
package doctor

// State says how well something is.
type State string

const (
	OK      State = "ok"
	Limited State = "limited" // recording works, less well
	Missing State = "missing" // recording, or what the check is about, does not work
)

// Check is one thing that was looked at.
type Check struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`          // what there is
	Cost  string `json:"cost,omitempty"` // what is lost by it
	Mend  string `json:"mend,omitempty"` // a command that mends it
}

// Report is what is made of facts.
type Report struct {
	Works  bool    `json:"works"` // whether "atys record" would work at all, or the server can be asked
	Checks []Check `json:"checks"`
}

// add adds the checks of a group.
func (r *Report) add(group string, checks ...Check) {
	for _, c := range checks {
		c.Group = group
		r.Checks = append(r.Checks, c)
	}
}

// Evaluate judges facts.
func Evaluate(f Facts) Report {
	var r Report
	r.add("kernel", f.kernel(), f.btf(), f.jit(), f.lockdown())
	r.add("privileges", f.capabilities()...)
	r.add("privileges", f.restriction())
	r.add("recording", f.probes()...)
	r.add("events", f.sampleRate(), f.cpuTime(), f.lockedMemory(), f.counters(), f.tracepoints(), f.cgroups())
	r.add("stacks and names", f.kernelStacks(), f.kernelSymbols(), f.mapFiles(), f.debuginfod())
	r.Works = f.probed()
	if f.Process != nil {
		r.add(f.Process.title(), f.Process.checks(f)...)
		r.Works = r.Works && f.Process.Err == ""
	}
	return r
}
