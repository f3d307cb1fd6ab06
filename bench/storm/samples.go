package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
)

// sample is what matters of one; why is empty where its stack is complete and
// each of its frames has a name.
type sample struct {
	pid      int
	at       int64 // CLOCK_MONOTONIC, ns
	starting bool  // within 50 ms of exec: counted apart
	why      string
}

// take keeps a window's samples until the storm's log tells whose they are.
func (r *recording) take(w *profile.Window) {
	start := w.Start.Sub(r.epoch)
	why := make([]string, len(w.Stacks))
	for id, s := range w.Stacks {
		why[id] = defect(w, s)
	}
	for _, s := range w.Samples {
		r.samples = append(r.samples, sample{w.Thread(s.Thread).PID, (start + s.Time).Nanoseconds(),
			w.Stacks[s.Stack].End == profile.EndStarting, why[s.Stack]})
	}
	for _, l := range w.Losses {
		r.losses.AddLoss(l)
	}
}

// defect says why a stack is not complete and named.
func defect(w *profile.Window, s profile.Stack) string {
	for _, id := range s.Locations {
		if l := w.Locations[id]; l.Kind != profile.KindKernel && l.Name == "" && len(w.Names[id]) == 0 {
			return "no name: " + w.Frames(id)[0].Function
		}
	}
	if !s.End.Truncated() { // a process whose memory is gone already has no user stack to miss
		return ""
	}
	in := "user code"
	if len(s.Locations) > 0 && w.Locations[s.Locations[0]].Kind == profile.KindKernel {
		in = "the kernel: " + phase(w, s)
	}
	return fmt.Sprintf("%s, in %s", s.End, in)
}

// phase is the outermost kernel function that tells what the process was
// doing: everything enters by the same few.
func phase(w *profile.Window, s profile.Stack) string {
	for _, id := range slices.Backward(s.Locations) {
		name := w.Frames(id)[0].Function
		if w.Locations[id].Kind == profile.KindKernel && !strings.HasPrefix(name, "entry_") && !strings.HasPrefix(name, "do_syscall") &&
			!strings.HasPrefix(name, "asm_") && !strings.HasPrefix(name, "x64_sys") && !strings.HasPrefix(name, "ret_from") {
			return name
		}
	}
	return "entry"
}

// life is one process of the storm.
type life struct {
	PID         int
	Role        string
	Forked, End int64
	Start       int64 // when its main function began: exec and the loader are over
}

// readStorm reads what the processes of a storm said of themselves, by process.
func readStorm(text []byte) (map[int][]life, error) {
	born := map[int][]life{}
	for line := range bytes.Lines(text) {
		var l life
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("read storm's log: %w", err)
		}
		if l.Role != "" {
			born[l.PID] = append(born[l.PID], l)
		}
	}
	for _, lives := range born {
		slices.SortFunc(lives, func(a, b life) int { return int(min(max(a.Forked-b.Forked, -1), 1)) })
	}
	return born, nil
}

// verdict counts the samples of processes that lived long enough.
type verdict struct {
	born, long      int
	all, short      int // samples; of processes that lived less
	starting, whole int
	reasons         map[string]int
	ages            [len(ages) + 1]int // of starting ones
}

// ages are what starting samples are counted by: time since their process's
// main function began.
var ages = [...]time.Duration{0, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond}

// Share is the part that is complete and named, starting ones included or not.
func (v verdict) share(starting bool) float64 {
	of := v.all
	if !starting {
		of -= v.starting
	}
	return float64(v.whole) / max(float64(of), 1)
}

// judge counts the samples kept so far that are of the storm's processes.
func (r *recording) judge(born map[int][]life) {
	v := &r.verdict
	if v.reasons == nil {
		v.reasons = map[string]int{}
	}
	for _, lives := range born {
		for _, l := range lives {
			v.born++
			if time.Duration(l.End-l.Forked) >= *lived {
				v.long++
			}
		}
	}
	for _, s := range r.samples {
		l, ok := lifeAt(born[s.pid], s.at)
		switch {
		case !ok:
		case time.Duration(l.End-l.Forked) < *lived:
			v.short++
		default:
			v.count(s, time.Duration(s.at-l.Start))
		}
	}
	r.samples = nil
}

func (v *verdict) count(s sample, age time.Duration) {
	v.all++
	switch {
	case s.starting:
		v.starting++
		i, _ := slices.BinarySearch(ages[:], age)
		v.ages[i]++
	case s.why == "":
		v.whole++
		return
	}
	v.reasons[s.why]++
}

// lifeAt is the process that had the number at an instant: the last to be
// forked before it, if it did not end long ago.
func lifeAt(lives []life, at int64) (life, bool) {
	const leaving = int64(100 * time.Millisecond) // to exit, after its last word
	for _, l := range slices.Backward(lives) {
		if l.Forked <= at {
			return l, at <= l.End+leaving
		}
	}
	return life{}, false
}
