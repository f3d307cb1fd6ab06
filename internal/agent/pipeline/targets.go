package pipeline

import (
	"maps"

	"atys.dev/atys/internal/profile"
)

// Targets are those of processes, not of threads: pruning replaces threads by one that
// stands for them.
type Targets map[program]profile.Labels

// program is a process as a window knows it.
type program struct {
	pid  int
	name string
}

func programOf(t *profile.Thread) program { return program{t.PID, t.Process} }

// TargetsOf returns the targets of threads' processes: target i is that of thread i.
func TargetsOf(threads []profile.Thread, each []profile.Labels) Targets {
	all := make(Targets, len(threads))
	for i := range threads {
		all[programOf(&threads[i])] = each[i]
	}
	return all
}

// programsOf returns the processes of threads.
func programsOf(threads []profile.Thread) map[program]bool {
	all := map[program]bool{}
	for i := range threads {
		all[programOf(&threads[i])] = true
	}
	return all
}

// each returns the targets of threads.
func (t Targets) each(threads []profile.Thread) []profile.Labels {
	each := make([]profile.Labels, len(threads))
	for i := range threads {
		each[i] = t[programOf(&threads[i])]
	}
	return each
}

// groups numbers the targets of threads: those of one have the same number.
func (t Targets) groups(threads []profile.Thread) []int {
	groups, numbers, known := make([]int, len(threads)), map[string]int{}, make(map[program]int, len(t))
	for i := range threads {
		p := programOf(&threads[i])
		number, ok := known[p]
		if !ok {
			key := t[p].String()
			if number, ok = numbers[key]; !ok {
				number = len(numbers)
				numbers[key] = number
			}
			known[p] = number
		}
		groups[i] = number
	}
	return groups
}

// agree reports whether no process has another target in o and, if they have to be the
// same, whether both have the same targets.
func (t Targets) agree(o Targets, same bool) bool {
	for p, target := range o {
		if mine, ok := t[p]; ok && mine.String() != target.String() {
			return false
		}
	}
	return !same || maps.Equal(t.keys(), o.keys())
}

func (t Targets) keys() map[string]bool {
	all := map[string]bool{}
	for _, target := range t {
		all[target.String()] = true
	}
	return all
}
