package cfi

import (
	"bytes"
	"slices"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// forkCode bounds the code between the system call that makes a thread and
// where the new one goes its own way.
const forkCode = 16

// forkRows covers the code of C libraries that two threads run, one after the
// other: that which made a thread, whose caller waits, and the new one, which
// has no caller. They part soon, by what the system call gave them:
//
//	syscall; test rax,rax; jl error; je 1f; ret; 1: ...     glibc, clone and clone3
//	syscall; test eax,eax; jnz 1f; xor ebp,ebp; ...         musl
//
// From there on rows tell the new thread's as an end, which is how the place is
// found: glibc's clone3 has no symbol. Before it, glibc says nothing, and code
// that was decoded seems to be its caller's alone. But it is here that a new
// thread spends its first time in the kernel, and its maker some 50 us.
func forkRows(im *image, all []rows.Row) []rows.Row {
	var forks rows.List
	for i := 1; i < len(all); i++ {
		end := all[i].Offset()
		if all[i].Rule().Type() != rows.End {
			continue
		}
		from, ok := forkBefore(im, end)
		if ok && !slices.ContainsFunc(all[firstAt(all, from):i], func(r rows.Row) bool { return !mayFork(r.Rule()) }) {
			forks.Begin(from, end-from)
			forks.Add(from, rows.NewRule(rows.Fork, rows.RBPSame, 1))
		}
	}
	return forks.Finish()
}

// mayFork tells whether a rule leaves it open, or is that of a maker of threads.
func mayFork(r rows.Rule) bool {
	return r.Type() == rows.Gap || r == rows.NewRule(rows.SP, rows.RBPSame, 1)
}

// firstAt is the index of the row that holds at off.
func firstAt(all []rows.Row, off uint32) int {
	i, exact := slices.BinarySearchFunc(all, off, func(r rows.Row, off uint32) int { return int(int64(r.Offset()) - int64(off)) })
	if exact {
		return i
	}
	return max(i-1, 0)
}

// forkBefore finds where the system call is whose outcome is tested shortly
// before end.
func forkBefore(im *image, end uint32) (from uint32, ok bool) {
	code := im.before(end, forkCode)
	for _, test := range []string{"\x0f\x05\x48\x85\xc0", "\x0f\x05\x85\xc0"} {
		if at := bytes.LastIndex(code, []byte(test)); at >= 0 {
			return end - forkCode + uint32(at), true
		}
	}
	return 0, false
}
