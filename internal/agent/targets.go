package agent

import "atys.dev/atys/internal/profile"

// targets are those of processes: threads come and go while a window is worked on,
// since some become one that stands for them.
type targets map[program]profile.Labels

// program is a process as a window knows it.
type program struct {
	pid  int
	name string
}

func programOf(t *profile.Thread) program { return program{t.PID, t.Process} }

// targetsOf are the targets of threads' processes: target i is that of thread i.
func targetsOf(threads []profile.Thread, each []profile.Labels) targets {
	all := make(targets, len(threads))
	for i := range threads {
		all[programOf(&threads[i])] = each[i]
	}
	return all
}

// each gives the targets of threads.
func (t targets) each(threads []profile.Thread) []profile.Labels {
	each := make([]profile.Labels, len(threads))
	for i := range threads {
		each[i] = t[programOf(&threads[i])]
	}
	return each
}

// groups numbers the targets of threads: those of one have the same number.
func (t targets) groups(threads []profile.Thread) []int {
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
