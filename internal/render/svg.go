package render

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"

	"atys.dev/atys/internal/profile"
)

const (
	svgWidth    = 1200
	svgMinWidth = 0.3  // px
	svgMargin   = 12   // px
	svgRow      = 18   // px
	svgLine     = 16   // px
	svgLetter   = 6.4  // px an average letter is wide in the font below
	svgMinLabel = 26.0 // px from which on a box has a label
)

const svgStyle = `svg{font:11px Inter,"Segoe UI",system-ui,-apple-system,"Helvetica Neue","DejaVu Sans",sans-serif}
.bg{fill:#fff}text{fill:#1c1c21}.t{font-size:15px;font-weight:600}.q{fill:#6c6c76}.w{fill:#8a5200}.u{opacity:.5}
.b:hover>rect{stroke:#1c1c21}
@media (prefers-color-scheme:dark){.bg{fill:#16171b}text{fill:#ececf0}.q{fill:#9a9ba6}.w{fill:#ffd88a}.b:hover>rect{stroke:#f4f4f7}
`

// SVG writes a static flame graph that needs nothing but itself: no script,
// each box with its figures as a tooltip, colours for light and dark.
func SVG(w io.Writer, t *profile.Tree, o Options) error {
	if err := o.check(t); err != nil {
		return fmt.Errorf("render svg: %w", err)
	}
	if o.Width <= 0 {
		o.Width = svgWidth
	}
	if o.MinWidth <= 0 {
		o.MinWidth = svgMinWidth
	}
	page := svgPage{out: bufio.NewWriter(w), options: o, inner: float64(max(o.Width-2*svgMargin, 100)), classes: map[string]int{}}
	page.drawing = draw(t, o, o.MinWidth/page.inner)
	page.write(t)
	if err := page.out.Flush(); err != nil {
		return fmt.Errorf("render svg: %w", err)
	}
	return nil
}

// svgPage is an SVG being written.
type svgPage struct {
	out     *bufio.Writer
	options Options
	inner   float64 // px between the margins
	drawing *drawing
	fills   []string       // light and dark, "#rrggbb#rrggbb"
	classes map[string]int // index into fills
}

func (p *svgPage) write(t *profile.Tree) {
	var lines []string
	for i, c := range t.Columns {
		lines = append(lines, wrap(columnName(len(t.Columns), i), facts(c, t.Root.Total[i]), p.letters(1))...)
	}
	if len(t.Columns) == 2 {
		lines = append(lines, "change: "+p.drawing.words())
	}
	top := 36 + svgLine*len(lines)
	height := top + svgRow*len(p.drawing.levels) + 34
	var body, footer strings.Builder
	p.boxes(&body, top)
	p.footer(&footer, height-12)
	fmt.Fprintf(p.out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", p.options.Width, height)
	fmt.Fprintf(p.out, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(p.options.title(t)), p.style())
	fmt.Fprintf(p.out, `<rect class="bg" width="100%%" height="100%%"/>`+"\n")
	fmt.Fprintf(p.out, `<text class="t" x="%d" y="24">%s</text>`+"\n", svgMargin, html.EscapeString(Fit(p.options.title(t), p.letters(1/1.5))))
	for i, line := range lines {
		fmt.Fprintf(p.out, `<text class="q" x="%d" y="%d">%s</text>`+"\n", svgMargin, 42+svgLine*i, html.EscapeString(line))
	}
	if len(p.drawing.levels) == 0 {
		fmt.Fprintf(p.out, `<text class="q" x="50%%" y="%d" text-anchor="middle">No samples</text>`+"\n", top+10)
	}
	p.out.WriteString(body.String())
	p.out.WriteString(footer.String())
	p.out.WriteString("</svg>\n")
}

func (p *svgPage) letters(scale float64) int { return int(p.inner / svgLetter * scale) }

func (p *svgPage) boxes(body *strings.Builder, top int) {
	levels := p.drawing.levels
	for depth, level := range levels {
		row := depth
		if p.options.Flame {
			row = len(levels) - 1 - depth
		}
		for _, b := range level {
			p.box(body, b, top+row*svgRow)
		}
	}
}

func (p *svgPage) box(body *strings.Builder, b box, y int) {
	x, width := svgMargin+b.x*p.inner, b.width*p.inner
	shade := shadeOf(b.node.Frame.Function)
	class := p.class(p.drawing.fill(b, shade, false), p.drawing.fill(b, shade, true))
	if len(p.drawing.columns) == 1 && p.drawing.noisy(0, b.node.Total[0]) {
		class += " u"
	}
	// An inner svg clips what does not fit.
	fmt.Fprintf(body, `<svg class="b" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title><rect class="%s" width="%.1f" height="%d"/>`,
		x, y, width, svgRow, html.EscapeString(strings.Join(p.drawing.describe(b), "\n")), class, max(0.2, width-min(0.8, width/4)), svgRow-1)
	if width >= svgMinLabel {
		room := int((width - 8) / svgLetter)
		name := shorten(b.name(), func(s string) bool { return cells(s) <= room })
		if label := Fit(name, room); cells(label) > 2 {
			fmt.Fprintf(body, `<text x="4" y="12.5">%s</text>`, html.EscapeString(label))
		}
	}
	body.WriteString("</svg>\n")
}

// class gives the class of a fill, which differs between the themes.
func (p *svgPage) class(light, dark string) string {
	key := light + dark
	i, ok := p.classes[key]
	if !ok {
		i = len(p.fills)
		p.classes[key] = i
		p.fills = append(p.fills, key)
	}
	return fmt.Sprintf("c%d", i)
}

// style lists the fills used, light ones first, dark ones inside the media rule.
func (p *svgPage) style() string {
	var light, dark strings.Builder
	for i, key := range p.fills {
		fmt.Fprintf(&light, ".c%d{fill:%s}", i, key[:7])
		fmt.Fprintf(&dark, ".c%d{fill:%s}", i, key[7:])
	}
	return light.String() + svgStyle + dark.String() + "}"
}

func (p *svgPage) footer(out *strings.Builder, y int) {
	if note := p.drawing.omitted(); note != "" {
		fmt.Fprintf(out, `<text class="q" x="%d" y="%d" text-anchor="end">%s</text>`+"\n", p.options.Width-svgMargin, y, html.EscapeString(note))
	}
	x := float64(svgMargin)
	for _, e := range p.drawing.legend() {
		fmt.Fprintf(out, `<rect x="%.0f" y="%d" width="9" height="9" rx="2" class="%s"/><text class="q" x="%.0f" y="%d">%s</text>`+"\n",
			x, y-9, p.class(e.light, e.dark), x+14, y, html.EscapeString(e.name))
		x += 30 + svgLetter*float64(cells(e.name))
		if x > p.inner*0.7 {
			break
		}
	}
}
