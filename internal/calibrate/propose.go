package calibrate

import (
	"encoding/json"
	"regexp"
	"strings"

	"atys.dev/atys/internal/spec"
)

// Propose is the profile that records targets as a candidate does; pruning of 0 or
// all is none. It is as spec reads it: what is proposed can be applied.
func Propose(name string, targets spec.Selector, c Candidate, pruning float64) (*spec.Profile, error) {
	p := &spec.Profile{Name: nameOf(name), Select: targets, Frequency: c.Max, Window: c.Window}
	if c.Policy != Fixed {
		p.Adaptive = &c.Options
	}
	if pruning < 100 {
		p.Pruning = pruning
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return spec.ParseJSON(text)
}

var notInNames = regexp.MustCompile(`[^a-z0-9.-]+`)

// nameOf makes a profile's name of what something is called.
func nameOf(text string) string {
	const most, none = 63, "calibrated"
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-.")
	name = strings.Trim(name[:min(len(name), most)], "-.")
	if name == "" {
		return none
	}
	return name
}
