package cfi

import (
	"bytes"
	"slices"
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
func forkRows(im *image, rows []Row) []Row {
	var forks rowList
	for i := 1; i < len(rows); i++ {
		end := rows[i].Offset()
		if rows[i].Rule().Type() != End {
			continue
		}
		from, ok := forkBefore(im, end)
		if ok && !slices.ContainsFunc(rows[firstAt(rows, from):i], func(r Row) bool { return !mayFork(r.Rule()) }) {
			forks.begin(from, end-from)
			forks.add(from, rule(Fork, RBPSame, 1))
		}
	}
	return forks.finish()
}

// mayFork tells whether a rule leaves it open, or is that of a maker of threads.
func mayFork(r Rule) bool { return r.Type() == Gap || r == rule(SP, RBPSame, 1) }

// firstAt is the index of the row that holds at off.
func firstAt(rows []Row, off uint32) int {
	i, exact := slices.BinarySearchFunc(rows, off, func(r Row, off uint32) int { return int(int64(r.Offset()) - int64(off)) })
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
