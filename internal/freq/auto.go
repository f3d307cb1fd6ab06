package freq

// stretches is policy auto. (Being written.)
type stretches struct{ options Options }

func newStretches(o Options) *stretches { return &stretches{o} }

// Next takes a window.
func (s *stretches) Next(w Window) Decision { return Decision{Hertz: s.options.Max, Reason: Began} }
