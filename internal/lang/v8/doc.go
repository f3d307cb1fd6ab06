// Package v8 names the functions of JavaScript that V8 runs, in Node.js and other programs that contain it.
//
// The flow:
//
//	Read       finds in V8's file what it exports for debuggers (v8dbg_*, all
//	           versions): offsets, types, constants; gives walks what they need
//	           of it (layout.go), see v8.h
//	Look       keeps the photographs that walks take of functions: name, script,
//	           position (photograph.go); and reads at once from the
//	           process what may soon be collected:
//	           script.go     from a position in a script to a line
//	           positions.go  from an offset in code to a position
//	           bytecode.go   of interpreted and baseline code
//	           code.go       of optimised code: which functions are inlined
//	           safepoints.go which of its positions is of which call
//	Name       tells from all that what an activation shows (namer.go)
//
// All that is read from the process can be torn or gone: pointers, types and
// lengths are checked, and what does not fit leaves a function without a line,
// never with another's.
package v8
