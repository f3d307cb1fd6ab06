package profile

// Own tells whether developers look for frames of this class when they ask
// for their own code. What nobody can place counts as theirs: hidden, its time
// would be charged to a function that may not have used it.
func (c Class) Own() bool { return c == ClassApplication || c == ClassUnknown }

// Strangers is the frame that stands for a stack on which no frame is anybody's
// own: [runtime] for one of a garbage collector, [kernel] for one of a kernel
// thread. A runtime's thread begins in a system library, and ends in the
// kernel now and then: so the runtime names a stack it is on, and after it a
// library.
func Strangers(stack []Frame) Frame {
	found := [len(classNames)]bool{}
	for _, f := range stack {
		if int(f.Class) < len(found) {
			found[f.Class] = true
		}
	}
	for _, c := range [...]Class{ClassRuntime, ClassLibrary, ClassKernel} {
		if found[c] {
			return Frame{Function: "[" + c.String() + "]", Class: c}
		}
	}
	return Frame{Function: "[no frames]"}
}
