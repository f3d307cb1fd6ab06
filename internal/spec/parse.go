package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// document is a Profile as it is written, in YAML or JSON.
type document struct {
	Kind        string      `json:"kind" yaml:"kind"`
	Name        string      `json:"name" yaml:"name"`
	Select      string      `json:"select,omitempty" yaml:"select,omitempty"`
	Kinds       []string    `json:"kinds,omitempty" yaml:"kinds,omitempty"`
	Events      []string    `json:"events,omitempty" yaml:"events,omitempty"`
	Kernel      string      `json:"kernel,omitempty" yaml:"kernel,omitempty"`
	Frequency   *frequency  `json:"frequency,omitempty" yaml:"frequency,omitempty"`
	Least       float64     `json:"minFrequency,omitempty" yaml:"minFrequency,omitempty"`
	Window      string      `json:"window,omitempty" yaml:"window,omitempty"`
	Threads     Threads     `json:"threads,omitempty" yaml:"threads,omitempty"`
	Pruning     string      `json:"pruning,omitempty" yaml:"pruning,omitempty"`
	Prometheus  *prometheus `json:"prometheus,omitempty" yaml:"prometheus,omitempty"`
	AllowAttach bool        `json:"allowAttach,omitempty" yaml:"allowAttach,omitempty"`
	Duration    string      `json:"duration,omitempty" yaml:"duration,omitempty"`
	Instances   int         `json:"instances,omitempty" yaml:"instances,omitempty"`
}

type prometheus struct {
	Top int `json:"top" yaml:"top"`
}

const kindProfile = "Profile"

// forever is what a duration is called that does not end.
const forever = "forever"

// maxFile bounds a file of objects.
const maxFile = 1 << 20

// ParseJSON reads one profile as it is kept and sent. What others send is never
// read as YAML: a few lines of that can keep a parser busy for minutes.
func ParseJSON(data []byte) (*Profile, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("longer than %d bytes", maxFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var d document
	if err := decoder.Decode(&d); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	p, err := d.profile()
	if err != nil {
		return nil, fmt.Errorf("%.80s %.80q: %w", d.Kind, d.Name, err)
	}
	return p, nil
}

// Parse reads the objects of a user's file, in YAML or JSON, defaults filled in.
// It tells all that is wrong with them.
func Parse(r io.Reader) ([]*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("longer than %d bytes", maxFile)
	}
	var all []*Profile
	var errs []error
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	for n := 1; ; n++ {
		var d document
		err := decoder.Decode(&d)
		switch {
		case errors.Is(err, io.EOF):
			if len(all) == 0 && len(errs) == 0 {
				return nil, errors.New("there is no object in it")
			}
			return all, errors.Join(errs...)
		case err != nil:
			return nil, cmp.Or(unquotedSelector(data), errors.New(yaml.FormatError(err, false, true))) // which shows the place
		case reflect.DeepEqual(d, document{}):
			continue // nothing between two separators
		}
		p, err := d.profile()
		if p != nil {
			err = errors.Join(err, p.CheckNew())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("object %d, %s %q: %w", n, d.Kind, d.Name, err))
			continue
		}
		all = append(all, p)
	}
}

// bareSelector is one without quotes, which YAML takes for a map, or for nothing.
var bareSelector = regexp.MustCompile(`(?m)^[ \t]*select:[ \t]*(\{.*\})`)

// unquotedSelector tells how to write the first selector without quotes, if there
// is any in a file that cannot be read.
func unquotedSelector(data []byte) error {
	found := bareSelector.FindSubmatch(data)
	if found == nil {
		return nil
	}
	quoted := "'" + strings.ReplaceAll(string(found[1]), "'", "''") + "'"
	return fmt.Errorf("select: %.300s has to be in quotes, for braces mean something else in YAML: write select: %.300s", found[1], quoted)
}

// profile reads what is written.
func (d *document) profile() (*Profile, error) {
	if d.Kind != kindProfile {
		return nil, fmt.Errorf("kind: %.80q: want %s", d.Kind, kindProfile)
	}
	p := &Profile{Name: d.Name, Kinds: d.Kinds, Events: d.Events, Kernel: d.Kernel, Threads: d.Threads, AllowAttach: d.AllowAttach, Instances: d.Instances, MinFrequency: d.Least}
	var errs []error
	var err error
	if p.Select, err = ParseSelector(d.Select); err != nil {
		errs = append(errs, fmt.Errorf("select: %w", err))
	}
	if d.Frequency != nil {
		if p.Frequency, p.Adaptive = d.Frequency.chosen(); p.Frequency == 0 && p.Adaptive == nil {
			errs = append(errs, fmt.Errorf("frequency: 0: want %d to %d Hz", minFrequency, maxFrequency))
		}
	}
	if d.Pruning != "" {
		if p.Pruning, err = ParsePruning(d.Pruning); err != nil {
			errs = append(errs, fmt.Errorf("pruning: %w", err))
		}
	}
	if d.Prometheus != nil {
		p.Top = d.Prometheus.Top
	}
	if p.Window, err = parseTime("window", d.Window); err != nil {
		errs = append(errs, err)
	}
	if d.Duration != forever {
		if p.Duration, err = parseTime("duration", d.Duration); err != nil {
			errs = append(errs, err)
		}
	}
	p.fill()
	return p, errors.Join(append(errs, p.check())...)
}

// parseTime reads a length of time, if there is one.
func parseTime(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s: %.80q: want a time such as 30s", field, text)
	}
	return d, nil
}

// document is a profile with all its defaults, as it is written.
func (p *Profile) document() *document {
	d := &document{Kind: kindProfile, Name: p.Name, Kinds: p.Kinds, Events: p.Events, Kernel: p.Kernel, Frequency: p.frequency(),
		Window: p.Window.String(), Threads: p.Threads, Prometheus: &prometheus{p.Top}, AllowAttach: p.AllowAttach, Duration: forever, Instances: p.Instances}
	if p.MinFrequency != DefaultMinFrequency { // older servers and agents do not know the field
		d.Least = p.MinFrequency
	}
	if len(p.Select) > 0 {
		d.Select = p.Select.String()
	}
	if p.Duration > 0 {
		d.Duration = p.Duration.String()
	}
	if p.Pruning > 0 {
		d.Pruning = pruningPrefix + strconv.FormatFloat(p.Pruning, 'f', -1, 64)
	}
	return d
}

// MarshalJSON writes a profile as Parse reads it.
func (p *Profile) MarshalJSON() ([]byte, error) { return json.Marshal(p.document()) }

// MarshalYAML writes a profile as Parse reads it.
func (p *Profile) MarshalYAML() (any, error) { return p.document(), nil }

// UnmarshalJSON reads a profile as ParseJSON does.
func (p *Profile) UnmarshalJSON(data []byte) error {
	read, err := ParseJSON(data)
	if err != nil {
		return err
	}
	*p = *read
	return nil
}
