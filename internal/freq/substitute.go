package freq

// Substitute is the paper's way to an answer (5.2 of Atys): while functions have not
// changed, the last window at a high rate stands for those at lower ones behind it. It
// says nothing of how much they may have changed meanwhile: Pool does.
func Substitute(windows []Window, o Options) *Pooled {
	o.Fill()
	p := &Pooled{Estimates: make([]Estimate, len(windows))}
	reference, before, stretch := -1, -1, 0
	for i := range windows {
		n := windows[i].N()
		if n == 0 {
			continue
		}
		if before >= 0 && JensenShannon(o.cells(&windows[before], &windows[i])) > o.Theta {
			reference = -1
			stretch++
		}
		if before = i; reference < 0 || windows[i].Hertz >= windows[reference].Hertz {
			reference = i
		}
		p.groups = append(p.groups, group{windows: []int{reference}, worth: []float64{1}, n: 1})
		p.Estimates[i] = Estimate{Of: []Part{{len(p.groups) - 1, 1}}, Spread: 1 / windows[reference].N(), Stretch: stretch,
			Final: true} // windows that come later do not change it
	}
	return p
}
