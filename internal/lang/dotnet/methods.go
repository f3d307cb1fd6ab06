package dotnet

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"sort"
	"strings"
)

// Method is the code of a method; one may have several, compiled one after the
// other or for other types.
type Method struct {
	Start, End uint64
	Name       string // with its namespace and class
}

// Methods names addresses.
type Methods struct {
	sorted []Method // by start, not overlapping
}

// Events of the runtime that tell of a method's code: those it writes at the
// end of a trace for all that there is.
const (
	rundownProvider  = "Microsoft-Windows-DotNETRuntimeRundown"
	methodAtStart    = 143 // MethodDCStartVerbose
	methodAtEnd      = 144 // MethodDCEndVerbose
	maxMethodName    = 1000
	maxMethods       = 1 << 20
	highestUserSpace = 1 << 47
)

// Parse reads an answer. One that ends in the middle gives an error beside
// what it tells.
func Parse(trace []byte) (Methods, error) {
	var found []Method
	err := eachEvent(trace, func(e event) {
		if e.provider != rundownProvider || e.id != methodAtStart && e.id != methodAtEnd || len(found) == maxMethods {
			return
		}
		if m, ok := parseMethod(e.payload); ok {
			found = append(found, m)
		}
	})
	if len(found) == 0 && err == nil {
		err = errors.New(".NET tells of no methods")
	}
	return NewMethods(found), err
}

// parseMethod reads MethodID, ModuleID, MethodStartAddress (8 bytes each),
// MethodSize, MethodToken, MethodFlags (4 each), then namespace, name and more.
func parseMethod(payload []byte) (m Method, ok bool) {
	c := readerOf(payload)
	c.Take(16)
	m.Start = c.U64()
	m.End = m.Start + uint64(c.U32())
	c.Take(8)
	class, name := c.text(), c.text()
	if c.Bad || m.Start == 0 || m.End <= m.Start || m.End > highestUserSpace {
		return m, false
	}
	m.Name = methodName(class, name)
	return m, m.Name != ""
}

// methodName writes Namespace.Class.Method. The runtime calls the methods of
// code made at run time those of "dynamicClass".
func methodName(class, name string) string {
	if name == "" || !printable(class) || !printable(name) {
		return ""
	}
	if class != "" {
		name = class + "." + strings.TrimPrefix(name, ".") // .ctor, .cctor
	}
	return strings.ToValidUTF8(name[:min(len(name), maxMethodName)], "") // not half a character at its end
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
}

// NewMethods sorts them; of what overlaps, the one told last is right.
func NewMethods(all []Method) Methods {
	slices.SortStableFunc(all, func(a, b Method) int { return cmp.Compare(a.Start, b.Start) })
	kept := all[:0]
	for _, m := range all {
		if n := len(kept); n > 0 && kept[n-1].End > m.Start {
			if kept[n-1].Start == m.Start {
				kept[n-1] = m
				continue
			}
			kept[n-1].End = m.Start
		}
		kept = append(kept, m)
	}
	return Methods{slices.Clip(kept)}
}

// Len counts them.
func (m Methods) Len() int { return len(m.sorted) }

// Find gives the method whose code holds an address.
func (m Methods) Find(address uint64) (Method, bool) {
	i := sort.Search(len(m.sorted), func(i int) bool { return m.sorted[i].Start > address }) - 1
	if i < 0 || address >= m.sorted[i].End {
		return Method{}, false
	}
	return m.sorted[i], true
}

// Within gives the methods whose code begins in a range of addresses.
func (m Methods) Within(start, end uint64) iter.Seq[Method] {
	return func(yield func(Method) bool) {
		i := sort.Search(len(m.sorted), func(i int) bool { return m.sorted[i].Start >= start })
		for ; i < len(m.sorted) && m.sorted[i].Start < end; i++ {
			if !yield(m.sorted[i]) {
				return
			}
		}
	}
}
