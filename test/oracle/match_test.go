package oracle

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

func TestParseRecord(t *testing.T) {
	n := bits.OnesCount64(registersAsked)
	whole := binary.LittleEndian.AppendUint32(nil, 7)    // pid
	whole = binary.LittleEndian.AppendUint32(whole, 8)   // tid
	whole = binary.LittleEndian.AppendUint64(whole, 123) // time
	whole = binary.LittleEndian.AppendUint64(whole, 1)   // cpu
	whole = binary.LittleEndian.AppendUint64(whole, 2)   // abi: 64 bits
	for i := range n {
		whole = binary.LittleEndian.AppendUint64(whole, uint64(100+i))
	}
	whole = binary.LittleEndian.AppendUint64(whole, 16)
	whole = append(whole, "stack bytes...??"...)
	whole = binary.LittleEndian.AppendUint64(whole, 11)
	r := parseRecord(whole)
	if r == nil || r.pid != 7 || r.tid != 8 || r.time != 123 || r.cpu != 1 || string(r.stack) != "stack bytes" {
		t.Fatalf("got %+v", r)
	}
	// ax bx cx dx si di bp sp ip r8-15 become DWARF's rax rdx rcx rbx rsi rdi rbp rsp r8-15 rip.
	want := [17]uint64{100, 103, 102, 101, 104, 105, 106, 107, 109, 110, 111, 112, 113, 114, 115, 116, 108}
	if r.registers != want {
		t.Errorf("registers %v, want %v", r.registers, want)
	}
	for cut := range len(whole) {
		parseRecord(whole[:cut]) // must not read past the end
	}
	if r := parseRecord(append(slices.Clone(whole[:24]), make([]byte, 300)...)); r != nil {
		t.Errorf("a record without user registers gave %+v", r)
	}
}

// TestMatch pairs records with samples, also where the clocks were read a moment apart.
func TestMatch(t *testing.T) {
	w := &profile.Window{Threads: []profile.Thread{{PID: 1, TID: 1}, {PID: 1, TID: 2}}, Samples: []profile.Sample{
		{Time: 5 * time.Millisecond, CPU: 0, Thread: 1, Stack: 0},
		{Time: 9 * time.Millisecond, CPU: 0, Thread: 1, Stack: 1},
		{Time: 9 * time.Millisecond, CPU: 1, Thread: 2, Stack: 2},
		{Time: 20 * time.Millisecond, CPU: 1, Thread: 2, Stack: 3},
	}}
	for _, shift := range []time.Duration{0, 300 * time.Microsecond, -600 * time.Microsecond} {
		const start = 1_000_000
		at := func(d time.Duration) uint64 { return start + uint64(d+shift) }
		pairs, late := match(w, start, []*record{
			{cpu: 0, tid: 1, time: at(5*time.Millisecond + 2*time.Microsecond)},
			{cpu: 0, tid: 1, time: at(9*time.Millisecond - time.Microsecond)},
			{cpu: 1, tid: 2, time: at(9*time.Millisecond + 3*time.Microsecond)},
			{cpu: 1, tid: 1, time: at(9 * time.Millisecond)},                      // another thread
			{cpu: 0, tid: 1, time: at(7 * time.Millisecond)},                      // too far from both
			{cpu: 1, tid: 2, time: at(20*time.Millisecond + 50*time.Microsecond)}, // of another timer
		})
		var got []profile.StackID
		for _, p := range pairs {
			got = append(got, p.sample.Stack)
		}
		slices.Sort(got)
		if !slices.Equal(got, []profile.StackID{0, 1, 2}) || late != 3 {
			t.Errorf("clocks %v apart: stacks %v, %d late", shift, got, late)
		}
	}
}

// TestJudge decides what counts as equal.
func TestJudge(t *testing.T) {
	frames := func(pcs ...uint64) (list []witness) {
		for i, pc := range pcs {
			list = append(list, witness{pc: pc, exact: i == 0, name: "f"})
		}
		return list
	}
	ours := func(end profile.End, pcs ...uint64) claim {
		c := claim{end: end}
		for _, pc := range pcs {
			c.places = append(c.places, place{"", pc})
		}
		return c
	}
	for _, test := range []struct {
		name string
		ours claim
		said said
		want Result
	}{
		{"the same", ours(profile.EndComplete, 10, 19, 29), said{"complete", frames(10, 20, 30)}, Result{Equal: 1}},
		{"another caller", ours(profile.EndComplete, 10, 18, 29), said{"complete", frames(10, 20, 30)}, Result{Differ: 1}},
		{"another leaf", ours(profile.EndComplete, 11, 19), said{"complete", frames(10, 20)}, Result{Differ: 1}},
		{"too short", ours(profile.EndComplete, 10, 19), said{"complete", frames(10, 20, 30)}, Result{Differ: 1}},
		{"too long", ours(profile.EndComplete, 10, 19, 29), said{"complete", frames(10, 20)}, Result{Differ: 1}},
		{"truncated, right so far", ours(profile.EndNoUnwind, 10, 19), said{"complete", frames(10, 20, 30)}, Result{Cut: 1}},
		{"truncated, wrong before", ours(profile.EndNoUnwind, 10, 18), said{"complete", frames(10, 20, 30)}, Result{Differ: 1}},
		{"the oracle is short", ours(profile.EndComplete, 10, 19, 29), said{"no bytes", frames(10, 20)}, Result{Short: 1}},
		{"the oracle is short, and contradicts", ours(profile.EndComplete, 10, 18, 29), said{"no bytes", frames(10, 20)}, Result{Differ: 1}},
		{"the oracle is short, and has more", ours(profile.EndComplete, 10), said{"no bytes", frames(10, 20)}, Result{Differ: 1}},
		{"the oracle guesses", ours(profile.EndComplete, 10, 18), said{"complete", []witness{{10, true, true, "f"}, {20, false, false, "f"}}}, Result{Short: 1}},
		{"the oracle guesses alike", ours(profile.EndComplete, 10, 19), said{"complete", []witness{{10, true, true, "f"}, {20, false, false, "f"}}}, Result{Short: 1, Guess: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newResult()
			r.judge(pair{record: &record{space: &space{}}}, test.ours, test.said)
			got := Result{Equal: r.Equal, Cut: r.Cut, Short: r.Short, Guess: r.Guess, Differ: r.Differ}
			if got.Equal != test.want.Equal || got.Cut != test.want.Cut || got.Short != test.want.Short || got.Guess != test.want.Guess || got.Differ != test.want.Differ {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
