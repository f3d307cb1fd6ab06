// Package cfi builds the unwinding table of an executable from what its file
// says: a sorted table of small rules, one lookup in which tells how to leave a
// native frame. Package rows has the tables.
//
// The flow of Build:
//
//  1. image: the executable segments, and how addresses become file offsets.
//  2. Each source yields rows of its own, sorted, with gaps where it knows
//     nothing: .eh_frame (frames.go, exec.go, expr.go), Go's pclntab
//     (pclntab.go, gocode.go), .debug_frame, the linker's stubs (plt.go), the
//     reviewed list of known ends (ends.go), V8's builtins (v8.go), and, last,
//     what follows from the code itself: functions that nothing but a symbol
//     describes (musl, assembly) are walked by package flow, and get rows where
//     all of it fits together (decoded.go); so do those that start and end every
//     program and library (startup.go).
//  3. rows.Overlay lays the sources over each other: the better one wins, the
//     next fills its gaps. Then sigreturn is given the pc after its system call
//     (signal.go).
//  4. rows.Table.SetRows cuts the rows into pages, so that a lookup needs one
//     table read and at most eight search steps.
//
// Offsets are those of the file, not of memory: one file mapped twice, at
// different addresses, needs one table.
//
// Only what a walk needs is kept: the canonical frame address and rbp. Other
// callee-saved registers matter only where the frame address hangs on them;
// such rows are LeafReg or ReturnReg, right in the innermost frame alone.
package cfi
