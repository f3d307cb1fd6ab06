package freq

// Resume makes a policy that goes on at a rate which another has decided. Of what was
// before, it knows nothing: until it has found something itself that rate stays.
func Resume(o Options, hertz float64) Policy {
	hertz = o.clamp(hertz)
	p := New(o)
	switch p := p.(type) {
	case *divergence:
		p.hertz = hertz
	case *stretches:
		p.hertz, p.resumed = hertz, true
	}
	return p
}
