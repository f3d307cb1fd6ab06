package freq

// Substitute is the paper's way to an answer (5.2 of Atys): while functions have not
// changed, the last window at a high rate stands for those at lower ones behind it. It
// says nothing of how much they may have changed meanwhile: Pool does.
func Substitute(windows []Window, o Options) *Pooled {
	o.Fill()
	p := &Pooled{Estimates: make([]Estimate, len(windows)), references: make([]int, len(windows))}
	var parts []Window
	parts, p.parts = apart(windows)
	for i := range parts {
		p.n = append(p.n, parts[i].N())
	}
	reference, before, stretch := -1, -1, 0
	for i := range windows {
		if p.references[i] = -1; windows[i].N() == 0 {
			continue
		}
		if before >= 0 && o.Divergence(&windows[before], &windows[i]) > o.Theta {
			reference = -1
			stretch++
		}
		if before = i; reference < 0 || windows[i].Hertz >= windows[reference].Hertz {
			reference = i
		}
		p.references[i] = reference
		p.Estimates[i] = Estimate{Final: true, Stretch: stretch} // windows that come later do not change it
	}
	return p
}

// substituted has each window have the shares of the one that stands for it.
func (p *Pooled) substituted(own [][]float64) []estimate {
	estimates := make([]estimate, len(own))
	for i, r := range p.references {
		if r < 0 {
			continue
		}
		parts := p.parts[r]
		n := p.n[parts.from:parts.to]
		all := sum(n)
		estimates[i].relVariance = 1 / all
		for j, share := range own[r] {
			estimates[i].share += n[j] / all * share
		}
	}
	return estimates
}
