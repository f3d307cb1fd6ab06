package selection

import (
	"strings"

	"atys.dev/atys/internal/profile"
)

// Own charges what each stack used to the developers' own frame nearest to its
// leaf: only frames of their own stay. A stack without any is charged to whom
// it belongs instead, in one frame such as [runtime], so that sums and exact
// times stay those of the whole. Frames must have their classes.
func Own(w *profile.Window) *profile.Window {
	return fold(w, func(f profile.Frame) bool { return f.Class.Own() })
}

// HideRuntime leaves the frames that developers of an application can read:
// their own, and those of libraries in their language. What runtimes, system
// libraries and the kernel did is charged to those who called them, and where
// nobody did, to one frame such as [runtime].
func HideRuntime(w *profile.Window) *profile.Window {
	return fold(w, WithoutRuntime)
}

// WithoutRuntime tells whether HideRuntime leaves a frame, which is classed.
func WithoutRuntime(f profile.Frame) bool {
	if f.Class == profile.ClassLibrary {
		return f.Kind != profile.KindNative || !sharedObject(f.Mapping)
	}
	return f.Class.Own()
}

// sharedObject tells libraries of machine code by their names. What is linked
// into a program itself is in the program's language.
func sharedObject(mapping string) bool {
	base := mapping[strings.LastIndexByte(mapping, '/')+1:]
	return strings.HasSuffix(base, ".so") || strings.Contains(base, ".so.") || strings.HasSuffix(base, ".node") || strings.HasPrefix(base, "[")
}

// fold keeps some frames of each stack, and all stacks.
func fold(w *profile.Window, keep func(profile.Frame) bool) *profile.Window {
	r := newRewriter(w, w.Head, func(t profile.Thread) profile.Thread { return t })
	for i := range w.Locations {
		var kept []profile.Frame
		for _, f := range w.Frames(profile.LocationID(i)) {
			if keep(f) {
				kept = append(kept, f)
			}
		}
		r.names[i] = kept
	}
	var all []profile.Frame
	return r.rewrite(func(stack profile.Stack) (locations []profile.LocationID, end profile.End, ok bool) {
		for _, id := range stack.Locations {
			if len(r.names[id]) > 0 {
				locations = append(locations, r.location(id))
			}
		}
		if len(locations) > 0 || stack.End.Truncated() {
			return locations, stack.End, true // who called what is missing is not known
		}
		all = all[:0]
		for _, id := range stack.Locations {
			all = append(all, w.Frames(id)...)
		}
		return []profile.LocationID{r.b.Named(profile.Strangers(all))}, stack.End, true
	})
}
