package pprof

import (
	"slices"
	"strconv"
	"strings"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/profile"
)

// columns says which of a profile's sample values is what.
type columns struct {
	types   []profile.ValueType
	column  []int // of each type
	n       int   // of the number of samples, -1 if there is none
	squares int   // of the squared weights, -1 if there is none
	scale   int
}

func columnsOf(p *gp.Profile, notes *noted) columns {
	c := columns{n: -1, squares: -1}
	if c.fromNotes(p, notes) {
		return c
	}
	// The default is the one to look at first, so it leads; without one named
	// it is the last, by pprof's rule.
	main := slices.IndexFunc(p.SampleType, func(t *gp.ValueType) bool { return t.Type == p.DefaultSampleType })
	if main < 0 {
		main = len(p.SampleType) - 1
	}
	for i, t := range p.SampleType {
		switch {
		case c.n < 0 && countsSamples(t):
			c.n = i
			if len(p.SampleType) > 1 {
				continue
			}
		case c.squares < 0 && t.Type == squaresType && len(p.SampleType) > 1:
			if scale, ok := parseScale(t.Unit); ok {
				c.squares, c.scale = i, scale
				continue
			}
		}
		vt := valueType(t)
		if i == main {
			c.types = slices.Insert(c.types, 0, vt)
			c.column = slices.Insert(c.column, 0, i)
			continue
		}
		c.types = append(c.types, vt)
		c.column = append(c.column, i)
	}
	if len(c.types) == 0 && c.n >= 0 { // samples and squares alone
		t := p.SampleType[c.n]
		c.types, c.column = []profile.ValueType{valueType(t)}, []int{c.n}
	}
	c.period(p)
	return c
}

// valueType describes a column of another tool's profile.
func valueType(t *gp.ValueType) profile.ValueType {
	vt := profile.ValueType{Kind: t.Type, Unit: t.Unit, Temporality: temporalityOf(t.Type)}
	vt.DecodeBase("")
	return vt
}

// temporalityOf returns the temporality of a kind where a file does not name it.
func temporalityOf(kind string) profile.Temporality {
	switch kind {
	case "inuse_space", "inuse_objects", "goroutine":
		return profile.Level
	}
	return profile.Delta
}

// countsSamples tells whether a column is a number of samples taken. The
// counts of heap and contention profiles are not: they are scaled estimates.
func countsSamples(t *gp.ValueType) bool {
	if t.Unit != samplesUnit {
		return false
	}
	switch t.Type {
	case samplesType, "sample", "goroutine", "threadcreate", "thread":
		return true
	}
	return false
}

// period gives the profile's period to the type it belongs to.
func (c *columns) period(p *gp.Profile) {
	pt := p.PeriodType
	if pt == nil || p.Period == 0 {
		return
	}
	for i, t := range c.types {
		if t.Kind == pt.Type && t.Unit == pt.Unit {
			c.types[i].Period = p.Period
			return
		}
	}
	for i, t := range c.types { // a heap's "space" for "inuse_space"
		if t.Unit == pt.Unit {
			c.types[i].Period = p.Period
			return
		}
	}
}

// fromNotes takes the types as the notes list them, if that fits the profile.
func (c *columns) fromNotes(p *gp.Profile, notes *noted) bool {
	if notes.windows != 1 || len(notes.types) == 0 || len(p.SampleType) == 0 || !countsSamples(p.SampleType[0]) {
		return false
	}
	for _, t := range notes.types {
		if t.column < 0 || t.column >= len(p.SampleType) {
			return false
		}
		if st := p.SampleType[t.column]; st.Type != utf8(t.Kind) || st.Unit != utf8(t.Unit) {
			return false
		}
	}
	for _, t := range notes.types {
		c.types = append(c.types, t.ValueType)
		c.column = append(c.column, t.column)
	}
	c.n = 0
	if last := len(p.SampleType) - 1; p.SampleType[last].Type == squaresType && !slices.Contains(c.column, last) {
		if scale, ok := parseScale(p.SampleType[last].Unit); ok {
			c.squares, c.scale = last, scale
		}
	}
	return true
}

// parseScale reads the unit of a column of squares: unit^2 or unit^2*2^n.
func parseScale(unit string) (scale int, ok bool) {
	i := strings.LastIndex(unit, "^2*2^")
	if i < 0 {
		return 0, strings.HasSuffix(unit, "^2")
	}
	scale, err := strconv.Atoi(unit[i+len("^2*2^"):])
	return scale, err == nil && scale >= -1100 && scale <= 1100
}
