package query

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/store"
)

func TestPlan(t *testing.T) {
	at := func(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }
	part := func(level store.Level, from, to float64) store.Query {
		return store.Query{Level: level, From: at(from), To: at(to)}
	}
	for name, test := range map[string]struct {
		from, to float64
		stale    []store.Step
		dropped  map[store.Level]time.Time
		want     []store.Query
	}{
		"nothing":  {1, 1, nil, nil, nil},
		"seconds":  {0.2, 0.8, nil, nil, []store.Query{part(store.Raw, 0.2, 0.8)}},
		"an hour":  {0, 60, nil, nil, []store.Query{part(store.Service1h, 0, 60)}},
		"two":      {0, 120, nil, nil, []store.Query{part(store.Service1h, 0, 120)}},
		"its ends": {-0.5, 72, nil, nil, []store.Query{part(store.Raw, -0.5, 0), part(store.Service1h, 0, 60), part(store.Service10m, 60, 70), part(store.Service1m, 70, 72)}},
		"days":     {-13 * 60, 37 * 60, nil, nil, []store.Query{part(store.Service1h, -13*60, -12*60), part(store.Service1d, -12*60, 36*60), part(store.Service1h, 36*60, 37*60)}},
		"stale minute": {0, 10, []store.Step{{Level: store.Service10m, Start: noon}, {Level: store.Service1m, Start: at(3)}}, nil,
			[]store.Query{part(store.Service1m, 0, 3), part(store.Raw, 3, 4), part(store.Service1m, 4, 10)}},
		"stale hour": {0, 120, []store.Step{{Level: store.Service1h, Start: at(60)}}, nil,
			[]store.Query{part(store.Service1h, 0, 60), part(store.Service10m, 60, 120)}},
		"dropped minutes": {0, 12, nil, map[store.Level]time.Time{store.Service1m: at(30), store.Service10m: at(5)}, []store.Query{part(store.Raw, 0, 12)}},
		"dropped hours":   {0, 130, nil, map[store.Level]time.Time{store.Service1h: at(50)}, []store.Query{part(store.Service10m, 0, 60), part(store.Service1h, 60, 120), part(store.Service10m, 120, 130)}},
	} {
		s := standing{stale: map[store.Level][]time.Time{}, dropped: test.dropped}
		for _, step := range test.stale {
			s.stale[step.Level] = append(s.stale[step.Level], step.Start)
		}
		if got := s.plan(at(test.from), at(test.to), ofServices); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestPlanCovers plans at random: the parts follow each other, are whole steps
// of their levels, and hold nothing stale.
func TestPlanCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		from := noon.Add(time.Duration(r.Int64N(int64(3 * time.Hour))))
		to := from.Add(time.Duration(r.Int64N(int64(4 * time.Hour))))
		s, stale := standing{stale: map[store.Level][]time.Time{}}, map[store.Step]bool{}
		for range r.IntN(40) {
			for _, step := range store.Steps(noon.Add(time.Duration(r.Int64N(int64(7 * time.Hour))))) {
				if r.IntN(2) == 0 {
					stale[step] = true
				}
			}
		}
		for step := range stale {
			s.stale[step.Level] = append(s.stale[step.Level], step.Start)
		}
		for _, of := range s.stale {
			slices.SortFunc(of, time.Time.Compare)
		}
		levels := [][]store.Level{ofServices, ofSeries, asCut}[r.IntN(3)]
		next := from
		for _, p := range s.plan(from, to, levels) {
			length := p.Level.Length()
			if !p.From.Equal(next) || !p.From.Before(p.To) || length > 0 && (!p.From.Truncate(length).Equal(p.From) || !p.To.Truncate(length).Equal(p.To)) {
				t.Fatalf("from %v to %v: %+v follows %v", from, to, p, next)
			}
			for at := p.From; length > 0 && at.Before(p.To); at = at.Add(length) {
				if stale[store.Step{Level: p.Level, Start: at}] {
					t.Fatalf("%+v has the stale step of %v", p, at)
				}
			}
			next = p.To
		}
		if !next.Equal(to) {
			t.Fatalf("from %v to %v: the parts end at %v", from, to, next)
		}
	}
}
