package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"atys.dev/atys/internal/freq"
)

// frequency is a number, or a range with a policy that chooses from it.
type frequency struct {
	fixed  float64
	spread *spread // nil: it is a number
}

// spread is a range as it is written, of which only the bounds have to be.
type spread struct {
	Min         float64 `json:"min" yaml:"min"`
	Max         float64 `json:"max" yaml:"max"`
	Policy      string  `json:"policy,omitempty" yaml:"policy,omitempty"`
	Top         int     `json:"top,omitempty" yaml:"top,omitempty"`
	Theta       float64 `json:"theta,omitempty" yaml:"theta,omitempty"`
	Lambda      float64 `json:"lambda,omitempty" yaml:"lambda,omitempty"`
	Streak      int     `json:"streak,omitempty" yaml:"streak,omitempty"`
	Renormalise bool    `json:"renormalise,omitempty" yaml:"renormalise,omitempty"`
	Width       float64 `json:"width,omitempty" yaml:"width,omitempty"`
}

func (f *frequency) UnmarshalYAML(data []byte) error {
	if hz, err := strconv.ParseFloat(string(bytes.TrimSpace(data)), 64); err == nil {
		f.fixed = hz
		return nil
	}
	f.spread = &spread{}
	if err := yaml.UnmarshalWithOptions(data, f.spread, yaml.Strict()); err != nil {
		return wrongFrequency(data)
	}
	return nil
}

func (f *frequency) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &f.fixed) == nil {
		return nil
	}
	f.spread = &spread{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(f.spread); err != nil {
		return wrongFrequency(data)
	}
	return nil
}

func wrongFrequency(data []byte) error {
	return fmt.Errorf("frequency: %.200q: want a number, such as 99, or a range, such as {min: 19, max: 999, policy: auto}, whose other fields are top and width, or of policy atys top, theta, lambda, streak and renormalise", data)
}

// MarshalYAML writes it as UnmarshalYAML reads it.
func (f *frequency) MarshalYAML() (any, error) { return f.written(), nil }

// MarshalJSON writes it as UnmarshalJSON reads it.
func (f *frequency) MarshalJSON() ([]byte, error) { return json.Marshal(f.written()) }

func (f *frequency) written() any {
	if f.spread != nil {
		return f.spread
	}
	return f.fixed
}

// chosen is the rate that is meant, or the largest of a range and how one of it is
// chosen.
func (f *frequency) chosen() (hertz float64, adaptive *freq.Options) {
	s := f.spread
	if s == nil {
		return f.fixed, nil
	}
	adaptive = &freq.Options{Policy: s.Policy, Min: s.Min, Max: s.Max, Top: s.Top,
		Theta: s.Theta, Lambda: s.Lambda, Streak: s.Streak, Renormalise: s.Renormalise, Width: s.Width}
	adaptive.Fill()
	return s.Max, adaptive
}

// frequency is the inverse of chosen.
func (p *Profile) frequency() *frequency {
	o := p.Adaptive
	if o == nil {
		return &frequency{fixed: p.Frequency}
	}
	return &frequency{spread: &spread{Min: o.Min, Max: o.Max, Policy: o.Policy, Top: o.Top,
		Theta: o.Theta, Lambda: o.Lambda, Streak: o.Streak, Renormalise: o.Renormalise, Width: o.Width}}
}

// checkFrequency tells all that is wrong with it, by field and value.
func (p *Profile) checkFrequency() (wrong []error) {
	within := func(field string, hertz float64) {
		if !(hertz >= minFrequency && hertz <= maxFrequency) { // nor is NaN
			wrong = append(wrong, fmt.Errorf("%s: %v: want %d to %d Hz", field, hertz, minFrequency, maxFrequency))
		}
	}
	if within("minFrequency", p.MinFrequency); len(wrong) == 0 && p.MinFrequency != DefaultMinFrequency && p.MinFrequency > p.Frequency {
		wrong = append(wrong, fmt.Errorf("minFrequency: %v: more than frequency, %v", p.MinFrequency, p.Frequency))
	}
	if p.Adaptive == nil {
		within("frequency", p.Frequency)
		return wrong
	}
	within("frequency.min", p.Adaptive.Min)
	within("frequency.max", p.Adaptive.Max)
	told := len(wrong) > 0
	if !slices.Contains(p.Kinds, KindCPU) {
		wrong = append(wrong, fmt.Errorf("frequency: a range is chosen from by what %s shows, and kinds are %q: add it, or name one rate, such as 99", KindCPU, p.Kinds))
	}
	for _, err := range p.Adaptive.Check() {
		if !told || !strings.HasPrefix(err.Error(), "min:") {
			wrong = append(wrong, fmt.Errorf("frequency.%w", err))
		}
	}
	return wrong
}

// Rates is how often is sampled, in words: 99, or 19-999 auto.
func (p *Profile) Rates() string {
	if o := p.Adaptive; o != nil {
		return fmt.Sprintf("%g-%g %s", o.Min, o.Max, o.Policy)
	}
	return strconv.FormatFloat(p.Frequency, 'g', -1, 64)
}
