package plot

import (
	"fmt"
	"html"
	"io"
	"strings"
)

const svgStyle = `svg{font:12px Inter,"Segoe UI",system-ui,-apple-system,"Helvetica Neue","DejaVu Sans",sans-serif}.l{fill:none;stroke-width:1.5;stroke-linejoin:round}.k0,.t{font-weight:600}`

// SVG writes charts below each other, with colours for light and dark.
func SVG(w io.Writer, charts ...*Chart) error {
	var body svgCanvas
	for i, c := range charts {
		c.draw(&body, float64(i)*high)
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" role="img">
<title>%s</title>
<style>%s%s@media (prefers-color-scheme:dark){%s}</style>
<rect class="bg" width="100%%" height="100%%"/>
%s</svg>
`, wide, float64(len(charts))*high, html.EscapeString(titles(charts)), svgStyle, colours("#fff", false), colours("#16171b", true), body.String())
	return err
}

func titles(charts []*Chart) string {
	all := make([]string, len(charts))
	for i, c := range charts {
		all[i] = c.Title
	}
	return strings.Join(all, "; ")
}

// colours are the rules of one theme.
func colours(background string, dark bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".bg{fill:%s}", background)
	for i, s := range inks() {
		colour := s.light
		if dark {
			colour = s.dark
		}
		fmt.Fprintf(&b, ".k%d{fill:%s}.l.k%[1]d{fill:none;stroke:%[2]s}", i, colour)
	}
	return b.String()
}

type svgCanvas struct{ strings.Builder }

func (c *svgCanvas) line(points []place, of ink, dashed bool) {
	if len(points) == 0 {
		return
	}
	dashes := ""
	if dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(c, `<polyline class="l k%d"%s points="`, of, dashes)
	for i, p := range points {
		if i > 0 {
			c.WriteByte(' ')
		}
		fmt.Fprintf(c, "%.1f,%.1f", p.x, p.y)
	}
	c.WriteString("\"/>\n")
}

func (c *svgCanvas) dot(at place, of ink, small bool) {
	fmt.Fprintf(c, `<circle class="k%d" cx="%.1f" cy="%.1f" r="%g"/>`+"\n", of, at.x, at.y, radius(small))
}

func radius(small bool) float64 {
	if small {
		return 1.75
	}
	return 3.5
}

func (c *svgCanvas) text(at place, text string, a align, of ink) {
	anchor := [...]string{begin: "start", middle: "middle", end: "end", upwards: "middle"}[a]
	turn := ""
	if a == upwards {
		turn = fmt.Sprintf(` transform="rotate(-90 %.1f %.1f)"`, at.x, at.y)
	}
	fmt.Fprintf(c, `<text class="k%d" x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", of, at.x, at.y, anchor, turn, html.EscapeString(text))
}

// width is that of letters of usual ones.
func (c *svgCanvas) width(text string) float64 { return 6.4 * float64(len(text)) }
