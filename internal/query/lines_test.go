package query

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// TestSeriesAddsUp compares lines with what Merge and Top say of the same steps.
func TestSeriesAddsUp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	kept := randomFleet(r, 2*atOnce)
	asker := Asker{Store: kept, Tenant: "x", Now: func() time.Time { return noon.Add(time.Hour) }}
	s := about(t, `{service="shop"}`)
	s.To = noon.Add(3*time.Minute + 30*time.Second)
	for _, o := range []SeriesOptions{{By: "", Limit: 2}, {By: "", Limit: 10}, {By: "executable", Limit: 1}, {By: "instance", Limit: 3}, {By: "instance", Limit: 100}, {By: "nothing", Limit: 3}} {
		o.Step = time.Minute
		t.Run(fmt.Sprintf("%s %d", o.By, o.Limit), func(t *testing.T) {
			got, err := asker.Series(t.Context(), s, o)
			if err != nil || len(got.Lines) == 0 || len(got.Lines) > o.Limit+1 || got.Unit != "nanoseconds" {
				t.Fatalf("%+v, %v", got, err)
			}
			whole, coverage, err := asker.Merge(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if got.Coverage.N != coverage.N || got.Coverage.Windows != coverage.Windows || got.Coverage.Value != coverage.Value {
				t.Errorf("covered %+v, want %+v", got.Coverage, coverage)
			}
			var n int64
			for i, line := range got.Lines {
				if len(line.Points) != 4 || line.Other && i < len(got.Lines)-1 {
					t.Errorf("line %d: %+v", i, line)
				}
				if i > 0 && !line.Other && line.Value > got.Lines[i-1].Value {
					t.Errorf("%s comes after less", line.Name)
				}
				for _, p := range line.Points {
					n += p.N
				}
			}
			if n != whole.N() {
				t.Errorf("lines have %d samples, want %d", n, whole.N())
			}
			for step := range 4 {
				part := s
				part.From = noon.Add(time.Duration(step) * time.Minute)
				part.To = earlier(part.From.Add(time.Minute), s.To)
				asker.sameStep(t, part, o, got.Lines, step)
			}
		})
	}
}

// sameStep compares the points of a step with the answers of Top and Split.
func (a Asker) sameStep(t *testing.T, s Selection, o SeriesOptions, lines []Line, step int) {
	t.Helper()
	want, whole := map[string]int64{}, int64(0)
	if o.By == "" {
		top, err := a.Top(t.Context(), s, View{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range top.Functions {
			want[f.Frame.Function] = f.Self.Value
		}
		whole = top.Value
	} else {
		parts, _, err := a.Split(t.Context(), s, Split{By: o.By})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			want[p.By] = p.Value
			whole += p.Value
		}
	}
	for _, line := range lines {
		p := line.Points[step]
		if !line.Other && p.Value != want[line.Name] {
			t.Errorf("step %d: %q has %d, want %d", step, line.Name, p.Value, want[line.Name])
		}
		if share := float64(p.Value) / float64(whole); whole > 0 && (math.Abs(p.Share.Value-share) > 1e-9 || !p.Share.Contains(share)) {
			t.Errorf("step %d: %q has a share of %+v, want %g", step, line.Name, p.Share, share)
		}
	}
}

func TestSeriesOfNothing(t *testing.T) {
	got, err := shop().Series(t.Context(), about(t, `{service="none"}`), SeriesOptions{Step: 10 * time.Minute, Limit: 5})
	if err != nil || len(got.Lines) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCommonType(t *testing.T) {
	cpu, offCPU := profile.CPUTime(10), profile.ValueType{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall}
	waits := profile.ValueType{Kind: "waits", Unit: "count"}
	for _, c := range []struct {
		types []profile.ValueType
		want  profile.ValueType
		err   error
	}{
		{[]profile.ValueType{cpu}, cpu, nil},
		{[]profile.ValueType{offCPU, cpu}, profile.ValueType{Kind: "wall", Unit: "nanoseconds"}, nil},
		{[]profile.ValueType{waits, {Kind: "faults", Unit: "count"}}, profile.ValueType{Kind: "faults+waits", Unit: "count"}, nil},
		{[]profile.ValueType{cpu, waits}, profile.ValueType{}, ErrMixed},
		{[]profile.ValueType{waits, {Kind: "objects", Unit: "count", Temporality: profile.Level}}, profile.ValueType{}, ErrMixed},
	} {
		if got, err := commonType(c.types); got != c.want || err != c.err {
			t.Errorf("%+v: %+v, %v", c.types, got, err)
		}
	}
}
