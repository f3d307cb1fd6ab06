package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
)

// language tells when a thread is inside a language's runtime.
type language struct {
	kinds []profile.Kind
	// entry matches native functions that run functions of the language; nil
	// where the runtime does not tell their names.
	entry *regexp.Regexp
	at    place
}

// place is where the functions stand that a native function runs.
type place uint8

const (
	inside   place = iota // it calls them
	around                // beside it, as its callers
	anywhere              // it need not have any of its own: Perl's runs the block of a sort, which is of the sub around
)

// The languages of the workloads.
var (
	java   = &language{[]profile.Kind{profile.KindJavaCompiled, profile.KindJavaInterpreted}, regexp.MustCompile(`^JavaCalls::call_helper\(`), inside}
	python = &language{[]profile.Kind{profile.KindPython}, regexp.MustCompile(`^_PyEval_EvalFrameDefault\b`), around}
	node   = &language{[]profile.Kind{profile.KindV8}, regexp.MustCompile(`^Builtins_JS(ConstructEntry|Entry|RunMicrotasksEntry)$`), inside}
	ruby   = &language{[]profile.Kind{profile.KindRuby}, regexp.MustCompile(`^(rb_vm_exec|vm_exec)\b`), around}
	php    = &language{[]profile.Kind{profile.KindPHP}, regexp.MustCompile(`^execute_ex\b`), around}
	perl   = &language{[]profile.Kind{profile.KindPerl}, regexp.MustCompile(`^Perl_runops_standard\b`), anywhere}
	dotnet = &language{[]profile.Kind{profile.KindDotNet}, nil, inside}
	erlang = &language{[]profile.Kind{profile.KindBEAM}, nil, inside}
)

// verdict counts the samples of a workload.
type verdict struct {
	language *language

	samples  int64
	whole    int64 // complete, and neither without functions nor nameless
	complete int64 // reached a known end
	entered  int64 // inside the runtime
	without  int64 // entered, and show no function of the language
	nameless int64 // show a function, or code made at run time, without a name
	gaps     int64 // entered several times, once without a function: see found
	ends     map[profile.End]int64
	faults   map[string]int64 // by what is wrong and the innermost frames
}

func newVerdict(l *language) *verdict {
	return &verdict{language: l, ends: map[profile.End]int64{}, faults: map[string]int64{}}
}

// add counts samples of one stack, outermost frame first.
func (v *verdict) add(frames []profile.Frame, end profile.End, n int64) {
	if end == profile.EndNoUser {
		return
	}
	v.samples += n
	f := v.language.judge(frames)
	var faults []string
	count := func(is bool, counter *int64, fault string) {
		if is {
			*counter += n
		}
		if is && fault != "" {
			faults = append(faults, fault)
		}
	}
	count(f.entered, &v.entered, "")
	count(f.without, &v.without, "entered without functions")
	count(f.nameless, &v.nameless, "a function without a name")
	count(end == profile.EndComplete, &v.complete, "")
	if end != profile.EndComplete {
		v.ends[end] += n
		faults = append(faults, end.String())
	}
	count(len(faults) == 0, &v.whole, "")
	count(f.gap && len(faults) == 0, &v.gaps, "a gap")
	for _, fault := range faults {
		v.faults[fault+": "+v.pattern(frames, f.gap)] += n
	}
}

// found is what the frames of a stack show.
type found struct {
	entered  bool // the thread was inside the runtime
	without  bool // so, and there is no function of the language
	nameless bool // some code has no name
	// gap: one of the entries ran no function, or none is seen. That is right
	// where it was just beginning or ending.
	gap bool
}

func (l *language) judge(frames []profile.Frame) (is found) {
	any := false                    // function of the language
	awaits, follows := false, false // the runtime was entered, and no function followed yet; one did
	for _, f := range frames {
		switch {
		case slices.Contains(l.kinds, f.Kind):
			any, is.entered, awaits, follows = true, true, false, true
			is.nameless = is.nameless || isNameless(f)
		case f.Kind == profile.KindJIT:
			is.entered = is.entered || l != java                      // whose threads that compile run stubs too
			is.nameless = is.nameless || l == dotnet && isNameless(f) // the others' frames stand beside it
		case f.Kind == profile.KindNative && l.entry != nil && l.entry.MatchString(f.Function):
			is.gap = is.gap || awaits || l.at == around && !follows
			is.entered, awaits, follows = true, l.at == inside, false
		}
	}
	is.gap = is.gap || awaits
	is.without = is.entered && !any
	return is
}

// isNameless tells whether what is shown stands for a name that is not known.
func isNameless(f profile.Frame) bool {
	return strings.HasPrefix(f.Function, "[") && strings.HasSuffix(f.Function, "function]") && f.Function != "[wasm function]" ||
		f.Function == "[unnamed]" || f.Function == "[code made at run time]" || f.Function == "[code without a file]"
}

const shown = 8 // frames of a pattern

// pattern is the innermost user frames of a stack, or those around the innermost
// entry where one has a gap.
func (v *verdict) pattern(frames []profile.Frame, gap bool) string {
	var names []string
	for _, f := range slices.Backward(frames) {
		if f.Kind == profile.KindKernel {
			continue
		}
		name := f.Function
		if f.Kind != profile.KindNative {
			name += " (" + f.Kind.String() + ")"
		}
		names = append(names, name)
	}
	from := 0
	if gap {
		from = max(0, slices.IndexFunc(names, func(name string) bool { return v.language.entry != nil && v.language.entry.MatchString(name) })-shown/2)
	}
	return strings.Join(names[from:min(len(names), from+shown)], " < ")
}

func (v *verdict) share(n int64) float64 { return float64(n) / float64(max(v.samples, 1)) }

// reasons lists how the stacks that are cut ended.
func (v *verdict) reasons() string {
	var parts []string
	for _, end := range byCount(v.ends) {
		parts = append(parts, fmt.Sprintf("%v %d", end, v.ends[end]))
	}
	return strings.Join(parts, ", ")
}

// explain prints the most frequent faults.
func (v *verdict) explain(w io.Writer, name string, top int) {
	fmt.Fprintf(w, "== %s: %d samples, %s whole\n", name, v.samples, harness.Percent(v.share(v.whole)))
	faults := byCount(v.faults)
	for _, fault := range faults[:min(top, len(faults))] {
		fmt.Fprintf(w, "%6d  %s\n", v.faults[fault], fault)
	}
}

// byCount gives the keys of counts, the largest first.
func byCount[K cmp.Ordered](counts map[K]int64) []K {
	return slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}
