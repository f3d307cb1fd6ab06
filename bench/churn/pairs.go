package main

import (
	"fmt"
	"regexp"
	"strings"

	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
)

// seen counts what was seen of a program.
type seen struct {
	samples int64
	made    int64 // samples with a function that was made
	cut     int64 // samples whose outermost frames are missing
	unnamed int64 // samples with a function that has no name
	pairs   int64 // of caller and callee of which one was made, by samples
	illegal map[string]int64
	whole   map[string]string // by illegal pair: one of the stacks it was on
	numbers map[string]bool
}

func (s *seen) wrong() (n int64) {
	for _, k := range s.illegal {
		n += k
	}
	return n
}

func (s *seen) join(o *seen) {
	s.init()
	s.samples += o.samples
	s.made += o.made
	s.cut += o.cut
	s.unnamed += o.unnamed
	s.pairs += o.pairs
	for pair, n := range o.illegal {
		s.illegal[pair] += n
	}
	for n := range o.numbers {
		s.numbers[n] = true
	}
}

func (s *seen) init() {
	if s.illegal == nil {
		s.illegal, s.whole, s.numbers = map[string]int64{}, map[string]string{}, map[string]bool{}
	}
}

// add checks the stacks of a window.
func (s *seen) add(r runtimes.Runtime, w *profile.Window) {
	s.init()
	var stack []profile.Frame
	for _, row := range w.Rows.All() {
		stack = w.AppendStack(stack[:0], row.Stack)
		own := stack[:0]
		for _, f := range stack {
			if r.Own(f) {
				own = append(own, f)
			}
		}
		if len(own) == 0 {
			continue // of the runtime's own threads, or before it runs anything
		}
		s.samples += row.N
		if w.Stacks[row.Stack].End.Truncated() {
			s.cut += row.N
		}
		s.check(own, row.N)
	}
}

// check counts the pairs of one stack, outermost frame first.
func (s *seen) check(stack []profile.Frame, samples int64) {
	made, unnamed := false, false
	var caller function
	for i, f := range stack {
		callee := functionOf(f)
		made, unnamed = made || callee.made(), unnamed || callee.kind == nameless
		if callee.made() {
			s.numbers[callee.number] = true
			s.judge(callee.err, samples, stack, i)
		}
		if i > 0 && (caller.made() || callee.made()) && caller.kind != nameless && callee.kind != nameless {
			s.pairs += samples
			s.judge(legal(caller, callee), samples, stack, i)
		}
		caller = callee
	}
	if made {
		s.made += samples
	}
	if unnamed {
		s.unnamed += samples
	}
}

// judge counts what is wrong with the i-th frame of a stack, or its caller.
func (s *seen) judge(err error, samples int64, stack []profile.Frame, i int) {
	if err == nil {
		return
	}
	pair := stack[i].Function
	if i > 0 {
		pair = stack[i-1].Function + " -> " + pair
	}
	pair = render.Printable(fmt.Sprintf("%s: %v", pair, err))
	if s.illegal[pair] += samples; s.whole[pair] == "" {
		var names []string
		for _, f := range stack {
			names = append(names, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		s.whole[pair] = render.Printable(strings.Join(names, ";"))
	}
}

// kind is what a function does among its four.
type kind int

const (
	other    kind = iota // none of those that were made
	nameless             // its name was gone
	constructor
	goes
	outer
	middle
	inner
)

var kinds = map[string]kind{"go": goes, "outer": outer, "middle": middle, "inner": inner}

// function is what a frame says it is.
type function struct {
	kind   kind
	number string
	name   string
	err    error // two numbers in one frame
}

func (f function) made() bool { return f.kind >= constructor }

var (
	madeName   = regexp.MustCompile(`(go|outer|middle|inner)(\d{6})?$`)
	madeClass  = regexp.MustCompile(`(?:Made|Late)(\d{6})`)
	madeFile   = regexp.MustCompile(`(?i)(?:made|late)(\d{6})\.\w+$`)
	initialise = regexp.MustCompile(`<(?:init|clinit)>$`)
)

// functionOf reads a frame: the numbers in the names of its class, of itself
// and of its file must be one.
func functionOf(f profile.Frame) function {
	out := function{name: f.Function}
	if strings.HasPrefix(f.Function, "[") {
		out.kind = nameless
		return out
	}
	numbers := map[string]bool{}
	name, class := madeName.FindStringSubmatch(f.Function), madeClass.FindStringSubmatch(f.Function)
	switch {
	case name != nil && (name[2] != "" || class != nil):
		out.kind = kinds[name[1]]
		if name[2] != "" {
			numbers[name[2]] = true
		}
	case class != nil && initialise.MatchString(f.Function):
		out.kind = constructor
	default:
		return out
	}
	if class != nil {
		numbers[class[1]] = true
	}
	if file := madeFile.FindStringSubmatch(f.File); file != nil && file[1] != "000000" { // Java's are compiled once
		numbers[file[1]] = true
	}
	for n := range numbers {
		out.number = n
	}
	if len(numbers) > 1 {
		out.err = fmt.Errorf("two numbers in one frame, in file %q", f.File)
	}
	return out
}

// callers are functions of the programs that call what was made, or stand
// between; callees are those that made functions call. Names of languages differ.
var (
	callers = regexp.MustCompile(`^(churn|child|<module>|{main}|main::churn|Churning\.(work|repeat|lambda.*)|Object#churn|block in Object#churn|block \(2 levels\) in Object#churn|` +
		`Integer#times|Kernel#public_send|.*(Constructor|Accessor|MethodHandle|LambdaForm|DirectMethodHandle).*)$`)
	callees = regexp.MustCompile(`^(Churning\$Work\.<init>|Integer#.*|range|imul|Math\.imul|java\.lang\.Object\.<init>)$`)
)

// legal tells why a function cannot have called another.
func legal(caller, callee function) error {
	switch {
	case !callee.made() && caller.made():
		if !callees.MatchString(callee.name) {
			return fmt.Errorf("what was made does not call it")
		}
	case !caller.made():
		if callee.kind != goes && callee.kind != constructor || !callers.MatchString(caller.name) {
			return fmt.Errorf("it is not called from outside, or not from there")
		}
	case caller.number != callee.number:
		return fmt.Errorf("they are not of one number")
	case callee.kind == constructor || caller.kind == constructor:
		if caller.kind != callee.kind { // a subclass's calls its parent's
			return fmt.Errorf("constructors call nothing but each other")
		}
	case callee.kind != caller.kind+1:
		return fmt.Errorf("it is not the next of the four")
	}
	return nil
}
