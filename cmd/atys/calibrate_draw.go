package main

import (
	"bytes"
	"fmt"
	"html/template"
	"io"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/render/plot"
)

// charts are what is drawn: of pruning where threads are known.
func (c calibrated) charts() []*plot.Chart {
	all := []*plot.Chart{c.ratesChart(), c.divergenceChart()}
	if p := c.Pruning; p != nil {
		all = append(all, c.errorChart())
		if len(p.Saved) > 0 {
			all = append(all, c.savedChart())
		}
	}
	return all
}

// ratesChart is error against cost.
func (c calibrated) ratesChart() *plot.Chart {
	chart := &plot.Chart{Title: render.Printable(c.Name) + ": by how much shares are off, and at which rate",
		X: plot.Axis{Label: "samples of a second of CPU time (Hz)", Log: true}, Y: plot.Axis{Label: "off by, points", Log: true}}
	for _, policy := range []string{calibrate.Fixed, freq.Atys, freq.Auto} {
		var points []plot.Point
		for _, r := range c.Results {
			if r.Policy == policy {
				points = append(points, resultPoint(r))
			}
		}
		chart.Series = append(chart.Series, plot.Series{Name: policy, Quiet: true, Points: points})
	}
	var frontier []plot.Point
	for _, r := range calibrate.Frontier(c.Results) {
		frontier = append(frontier, resultPoint(r))
	}
	last := frontier[len(frontier)-1]
	wanted := []plot.Point{{X: frontier[0].X, Y: 100 * c.Within}, {X: last.X, Y: 100 * c.Within}}
	chart.Series = append(chart.Series, plot.Series{Name: "frontier", Style: plot.Steps, Points: frontier}, plot.Series{Name: "wanted", Style: plot.Dashes, Points: wanted},
		plot.Series{Name: "proposed", Points: []plot.Point{resultPoint(c.Chosen)}})
	return chart
}

func resultPoint(r calibrate.Result) plot.Point { return plot.Point{X: r.Hertz, Y: 100 * r.Error} }

// divergenceChart is Figure 5 of the paper, with the threshold.
func (c calibrated) divergenceChart() *plot.Chart {
	chart := &plot.Chart{Title: "How much windows diverge from the ones before", X: plot.Axis{Label: "time, s"}, Y: plot.Axis{Label: "divergence, nats"}}
	for _, window := range c.Tried.Windows {
		var points []plot.Point
		for _, d := range c.Stream.Divergences(window) {
			points = append(points, plot.Point{X: d.At.Seconds(), Y: d.Nats})
		}
		chart.Series = append(chart.Series, plot.Series{Name: "windows of " + window.String(), Style: plot.Line, Points: points})
	}
	level := func(name string, nats float64) {
		chart.Series = append(chart.Series, plot.Series{Name: name, Style: plot.Dashes, Points: []plot.Point{{X: 0, Y: nats}, {X: c.Stream.Length().Seconds(), Y: nats}}})
	}
	level(fmt.Sprintf("theta %g", c.Theta), c.Theta)
	level(fmt.Sprintf("by chance: %v at %.3g Hz", c.Chosen.Window, c.Chosen.Hertz), c.Stream.ByChance(c.Chosen.Window, c.Chosen.Hertz))
	return chart
}

// errorChart is Figure 6 of the paper, with the fit and what it is solved for.
func (c calibrated) errorChart() *plot.Chart {
	p := c.Pruning
	chart := &plot.Chart{Title: fmt.Sprintf("MAPE(p) = %s", logWords(p.Error)), X: levelAxis(), Y: plot.Axis{Label: "off by, %"}, Series: []plot.Series{
		{Name: "measured", Points: levelPoints(p.Off)},
		{Name: "fit", Style: plot.Line, Points: plot.Sampled(prune.MinLevel, prune.MaxLevel, p.Error.At)},
		{Name: "wanted", Style: plot.Dashes, Points: []plot.Point{{X: prune.MinLevel, Y: p.Epsilon}, {X: prune.MaxLevel, Y: p.Epsilon}}},
	}}
	if c.Level < prune.MaxLevel {
		chart.Series = append(chart.Series, plot.Series{Name: "proposed: " + prune.Level(c.Level), Points: []plot.Point{{X: c.Level, Y: c.Off}}})
	}
	return chart
}

func (c calibrated) savedChart() *plot.Chart {
	p := c.Pruning
	return &plot.Chart{Title: fmt.Sprintf("T(p) = %s", lineWords(p.Time)), X: levelAxis(), Y: plot.Axis{Label: "time saved, %"}, Series: []plot.Series{
		{Name: "measured", Points: levelPoints(p.Saved)},
		{Name: "fit", Style: plot.Line, Points: plot.Sampled(prune.MinLevel, prune.MaxLevel, p.Time.At)},
	}}
}

func levelAxis() plot.Axis {
	return plot.Axis{Label: "level p, % of the samples whose threads are kept"}
}

func levelPoints(points []calibrate.Point) (all []plot.Point) {
	for _, p := range points {
		all = append(all, plot.Point{X: p.Level, Y: p.Value})
	}
	return all
}

func (c calibrated) writePNG(w io.Writer) error { return plot.PNG(w, c.charts()...) }

const calibratedPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Name}}, calibrated</title>
<style>
body{font:14px/1.5 Inter,"Segoe UI",system-ui,-apple-system,"Helvetica Neue","DejaVu Sans",sans-serif;color:#1c1c21;background:#fff;max-width:62em;margin:2em auto;padding:0 1em}
pre{font:12.5px/1.45 "JetBrains Mono",ui-monospace,"DejaVu Sans Mono",monospace;overflow-x:auto}
svg{max-width:100%;height:auto;display:block;margin:0 0 1em -1em}
@media (prefers-color-scheme:dark){body{color:#ececf0;background:#16171b}}
</style>
<h1>{{.Name}}, calibrated</h1>
{{range .Charts}}{{.}}
{{end}}<pre>{{.Words}}</pre>
</html>
`

// writeHTML writes a page that needs nothing but itself.
func (c calibrated) writeHTML(w io.Writer) error {
	words, err := c.text()
	if err != nil {
		return err
	}
	page := struct {
		Name, Words string
		Charts      []template.HTML
	}{Name: render.Printable(c.Name), Words: words}
	for _, chart := range c.charts() {
		var svg bytes.Buffer
		if err := plot.SVG(&svg, chart); err != nil {
			return err
		}
		page.Charts = append(page.Charts, template.HTML(svg.String())) // its words are escaped
	}
	t, err := template.New("calibrated").Parse(calibratedPage)
	if err != nil {
		return err
	}
	return t.Execute(w, page)
}
