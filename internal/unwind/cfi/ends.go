package cfi

// fate is what the lists below say of a function whose unwind information is
// missing, or says less than its source.
type fate uint8

const (
	fateNone         fate = iota
	fateEnd               // outermost: the stack is complete here
	fateEndAfter          // complete, from where it leaves its first stack
	fateLostAfter         // unknown, from where it leaves its first stack
	fateSwitch            // leaves its stack, rbp leads back
	fateThrough           // marked outermost by Go, though its caller can be found
	fateSignal            // signal handlers return here
	fateBlob              // not a function: V8's builtins
	fateBlobSize          // how many bytes they have
	fateBlobCall          // returns where V8's builtins are
	fateBlobSizeCall      // returns how many bytes they have
)

// maxGoName is the length of the longest name that goFate knows, with its ABI.
const maxGoName = 40

// goFate is the reviewed list of Go's runtime functions that a pc table alone
// gets wrong. Read in the sources of Go 1.26 (asm_amd64.s, sys_linux_amd64.s,
// rt0_linux_amd64.s, cgo/asm_amd64.s) and tried by walking the stacks of running
// programs built with Go 1.14, 1.16, 1.18, 1.20, 1.22, 1.25 and 1.26.
func goFate(name string) fate {
	switch name {
	case "runtime.goexit", // what every goroutine returns to
		"runtime.mstart",   // first Go function of a thread
		"runtime.rt0_go",   // first of the program; clears rbp, never returns
		"_rt0_amd64",       // jumps to rt0_go: the program's entry
		"_rt0_amd64_linux": // jumps to _rt0_amd64: the program's entry
		return fateEnd

	case "runtime.mcall", // the goroutine may run elsewhere while fn runs here
		"runtime.morestack", // its stack is being moved while newstack runs here
		"runtime.clone":     // the child starts on an empty stack
		return fateEndAfter

	case "gogo", "runtime.gogo": // has loaded another goroutine's rsp, whose pc is in a register
		return fateLostAfter

	// They call C, or runtime code, on the thread's own stack, while rbp keeps
	// pointing into the frame they were called with; or, cgocallback, Go code
	// on the goroutine's stack from C. Go 1.17 and later mark them itself. Up
	// to Go 1.20 some have no frame: following rbp would skip their caller, so
	// there the thread's own stack is all, and complete.
	case "runtime.systemstack", "runtime.asmcgocall", "runtime.asmcgocall_no_g",
		"runtime.cgocallback", "runtime.cgocallback_gofunc",
		"runtime.nanotime", "runtime.nanotime1", "runtime.walltime", "runtime.walltime1",
		"runtime.sigfwd", "runtime.callCgoMmap", "runtime.callCgoMunmap", "runtime.callCgoSigaction":
		return fateSwitch

	case "runtime.sigtramp", // the kernel called it, and it returns to sigreturn
		"runtime.cgoSigtramp",
		"runtime.sigprofNonGoWrapper", // called from C
		"crosscall2":                  // called from C, saves C's registers in a way of its own
		return fateThrough

	case "runtime.sigreturn__sigaction", "runtime.sigreturn":
		return fateSignal
	}
	return fateNone
}

// knownSymbol is a function of a C library that needs no unwind information to
// be known as an end, or as the code that signal handlers return to.
type knownSymbol struct {
	name string
	fate fate
	file string // if set, the source file must be called so: the name is common
}

// knownSymbols is the reviewed list. It fills gaps only: glibc marks its own
// ends (_start, clone, clone3: return address undefined), but for what forkRows
// finds. What remains is mostly musl, whose C is compiled without unwind information.
func knownSymbols() []knownSymbol {
	return []knownSymbol{
		{"_start", fateEnd, ""},                  // where the kernel enters, also found by address
		{"_start_c", fateEnd, ""},                // musl: called by _start
		{"__libc_start_main", fateEnd, ""},       // musl: jumps to the next
		{"libc_start_main_stage2", fateEnd, ""},  // musl: calls main
		{"_dlstart", fateEnd, ""},                // musl: where the kernel enters the loader
		{"_dlstart_c", fateEnd, ""},              // musl: called by _dlstart
		{"clone", fateEndAfter, ""},              // starts threads where it has no CFI
		{"__clone", fateEndAfter, ""},            // musl: the same, and its caller waits in it
		{"start", fateEnd, "pthread_create"},     // musl: first of a thread, calls the user's
		{"start_c11", fateEnd, "pthread_create"}, // musl: the same for C11 threads
		{"__restore_rt", fateSignal, ""},         // musl: rt_sigreturn

		// V8's builtins are machine code without unwind information (v8.go).
		{"v8_Default_embedded_blob_code_", fateBlob, ""},      // up to V8 10 only points there
		{"v8_Default_embedded_blob_code_data_", fateBlob, ""}, // and this is it
		{"v8_Default_embedded_blob_code_size_", fateBlobSize, ""},
		{"_ZN2v88internal23DefaultEmbeddedBlobCodeEv", fateBlobCall, ""},
		{"_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv", fateBlobSizeCall, ""},
	}
}
