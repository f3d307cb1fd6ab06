package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
)

// box is one node's place: x and width are fractions of the whole.
type box struct {
	node     *profile.Node
	depth    int
	x, width float64
}

// drawing is a tree laid out for a medium with a least width.
type drawing struct {
	certainty
	changes // of two columns
	options Options
	levels  [][]box
	narrow  int // boxes left out because they are too narrow, and all below them
}

// draw lays a tree out. Widths are shares; in a comparison the mean of both
// columns', so that what vanished is still seen.
func draw(t *profile.Tree, o Options, minWidth float64) *drawing {
	d := &drawing{certainty: newCertainty(t), options: o}
	if len(t.Columns) == 2 {
		d.changes = d.changesOf(t)
	}
	var place func(n *profile.Node, depth int, x float64)
	place = func(n *profile.Node, depth int, x float64) {
		width := d.width(n)
		if width <= 0 || width < minWidth {
			d.narrow += size(n)
			return
		}
		if depth == len(d.levels) {
			d.levels = append(d.levels, nil)
		}
		d.levels[depth] = append(d.levels[depth], box{n, depth, x, width})
		for _, c := range n.Children {
			place(c, depth+1, x)
			x += max(0, d.width(c))
		}
	}
	if d.width(t.Root) > 0 {
		place(t.Root, 0, 0)
	}
	return d
}

func (d *drawing) width(n *profile.Node) float64 {
	w := 0.0
	for c, sum := range n.Total {
		w += d.share(c, sum) / float64(len(n.Total))
	}
	return w
}

func size(n *profile.Node) int {
	s := 1
	for _, c := range n.Children {
		s += size(c)
	}
	return s
}

// fill gives a box's colour; shade tells neighbours apart.
func (d *drawing) fill(b box, shade int, dark bool) string {
	if len(d.columns) == 2 {
		return changeFill(d.relativeChange(b.node.Total), d.of[b.node].Significant(), dark)
	}
	lead := b.depth <= d.options.Lead
	return swatchOf(b.node.Frame, d.options.colorBy(), lead).fill(shade, b.node.Frame.Inlined, dark)
}

// name is what stands in a box.
func (b box) name() string {
	if b.depth == 0 {
		return "all"
	}
	return Printable(b.node.Frame.Function)
}

// describe says in lines what there is to know of a box.
func (d *drawing) describe(b box) []string {
	f := b.node.Frame
	lines := []string{b.name()}
	var about []string
	if f.Kind != profile.KindUnknown {
		about = append(about, f.Kind.String())
	}
	if f.Class != profile.ClassUnknown && f.Kind != profile.KindKernel {
		about = append(about, f.Class.String())
	}
	if f.Inlined {
		about = append(about, "inlined")
	}
	if place := place(f); place != "" {
		about = append(about, place)
	}
	if f.Mapping != "" {
		about = append(about, Printable(f.Mapping))
	}
	if len(about) > 0 {
		lines = append(lines, strings.Join(about, " · "))
	}
	for c, sum := range b.node.Total {
		lines = append(lines, columnName(len(d.columns), c)+d.figures(c, sum))
	}
	if len(d.columns) == 2 {
		change := d.of[b.node]
		lines = append(lines, changeText(change.Difference.Value)+" ("+changeInterval(change.Difference.Low, change.Difference.High)+")"+chance(change))
	}
	return lines
}

func chance(change *stats.Comparison) string {
	switch {
	case change.Significant():
		return ""
	case !change.Tested && change.Difference.Value != 0:
		return ", too few samples to tell"
	}
	return ", could be chance"
}

func (d *drawing) figures(column int, sum profile.Sum) string {
	text := fmt.Sprintf("%s, %s", Value(float64(sum.Value), d.columns[column].Type.Unit), Share(d.share(column, sum)))
	if i, ok := d.interval(column, sum); ok {
		text += " (95% interval " + shareInterval(i.Low, i.High) + ")"
	}
	return text + fmt.Sprintf(", %s samples", Count(sum.N))
}

func columnName(columns, c int) string {
	if columns < 2 {
		return ""
	}
	return [...]string{"before: ", "after: "}[c]
}

// place is a frame's file and line.
func place(f profile.Frame) string {
	line := f.Line
	if line <= 0 {
		line = f.StartLine
	}
	if f.File == "" || line <= 0 {
		return Printable(f.File)
	}
	return fmt.Sprintf("%s:%d", Printable(f.File), line)
}

// words says how many boxes changed beyond chance.
func (c changes) words() string {
	return fmt.Sprintf("%s of %s tested changed beyond chance", Count(int64(c.family.Found)), plural(c.family.Tested, "box", "boxes"))
}

// omitted says what a drawing left out; empty if nothing.
func (d *drawing) omitted() string {
	if d.narrow == 0 {
		return ""
	}
	return "left out: " + plural(d.narrow, "box", "boxes") + " too narrow to draw"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(int64(n)) + " " + many
}

// facts says in a few words what a column measured, how, and what is missing.
func facts(c profile.Column, whole profile.Sum) []string {
	out := []string{Totals(whole.Value, c.Type, c.Head.Exact.CPU)}
	out = append(out, plural(int(whole.N), "sample", "samples"))
	if c.Head.Duration > 0 {
		out = append(out, "over "+span(c.Head.Duration))
	}
	if how := designText(c.Head.Design); how != "" {
		out = append(out, "sampled "+how)
	}
	if lacks := Losses(c.Head.Losses, whole.N, c.Head.Exact.CPU); lacks.Line != "" {
		out = append(out, lacks.Line)
	}
	return out
}

// Totals words what was sampled and, of CPU time, what the kernel measured: two
// totals that need not agree, since one is an estimate.
func Totals(sampled int64, t profile.ValueType, exact time.Duration) string {
	value, kind := Value(float64(sampled), t.Unit), Printable(t.Kind)
	switch {
	case t.Kind == "cpu" && exact > 0:
		return "sampled " + value + " (measured " + span(exact) + ") of CPU time"
	case t.Kind == "cpu":
		return value + " of CPU time"
	case exact > 0:
		kind += ", " + span(exact) + " of CPU time used"
	}
	if t.Unit != "count" {
		kind = "of " + kind
	}
	return value + " " + kind
}

func designText(d profile.Design) string {
	switch d {
	case profile.DesignUnknown:
		return ""
	case profile.DesignCensus:
		return "completely"
	case profile.DesignPeriodic:
		return "periodically"
	case profile.DesignRandomised:
		return "at random"
	case profile.DesignThinned:
		return "by random thinning"
	case profile.DesignSizeBiased:
		return "by size"
	}
	return Printable(string(d))
}

// legendEntry explains one colour.
type legendEntry struct{ name, light, dark string }

// legend lists the colours that were drawn, the largest first.
func (d *drawing) legend() []legendEntry {
	if len(d.columns) == 2 {
		entry := func(name string, relative float64) legendEntry {
			return legendEntry{name, changeFill(relative, relative != 0, false), changeFill(relative, relative != 0, true)}
		}
		return []legendEntry{entry("less", -0.6), entry("could be chance", 0), entry("more", 0.6)}
	}
	widths := map[swatch]float64{}
	for _, level := range d.levels {
		for _, b := range level {
			if b.depth > d.options.Lead {
				widths[swatchOf(b.node.Frame, d.options.colorBy(), false)] += b.width
			}
		}
	}
	swatches := slices.SortedFunc(maps.Keys(widths), func(a, b swatch) int {
		return cmp.Or(cmp.Compare(widths[b], widths[a]), cmp.Compare(a.Name, b.Name))
	})
	var out []legendEntry
	for _, s := range swatches {
		out = append(out, legendEntry{Printable(s.Name), s.fill(1, false, false), s.fill(1, false, true)})
	}
	return out
}
