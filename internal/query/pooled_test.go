package query

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// TestPooled has a service do one thing for a while, and then another: steps know more
// of each other than of themselves, and nothing of those before the change.
func TestPooled(t *testing.T) {
	const steps, change, samples = 30, 14, 400
	rng := rand.New(rand.NewPCG(1, 1))
	kept := &shelf{}
	truth := make([]float64, steps)
	for i := range truth {
		if truth[i] = 0.4; i >= change {
			truth[i] = 0.1
		}
		parse := int64(0)
		for range samples {
			if rng.Float64() < truth[i] {
				parse++
			}
		}
		kept.windows = append(kept.windows, cut("a", time.Duration(i)*10*time.Second, 10*time.Second, 40,
			map[string]int64{"main;serve;parse": parse, "main;serve": samples/2 - parse/2, "main;gc": samples/2 - (parse+1)/2}))
	}
	asker := Asker{Store: kept, Tenant: "x", Now: func() time.Time { return noon.Add(time.Hour) }}
	about := about(t, `{service="shop"}`)
	about.To = noon.Add(steps * 10 * time.Second)
	parts, _, err := asker.Split(t.Context(), about, Split{Step: 10 * time.Second, Function: "parse", Pooled: true})
	if err != nil || len(parts) != steps {
		t.Fatal(len(parts), err)
	}
	own, pooled := 0.0, 0.0
	for i, p := range parts {
		if p.Pooled == nil {
			t.Fatalf("step %d is not pooled", i)
		}
		own += math.Abs(p.Share.Value - truth[i])
		pooled += math.Abs(p.Pooled.Share.Value - truth[i])
		if p.Pooled.Share.Width() > p.Share.Width()*1.05 {
			t.Errorf("step %d: pooled it is %+v, alone %+v", i, p.Pooled.Share, p.Share)
		}
		if want := i / change; p.Pooled.Stretch != min(want, 1) || i < change && !p.Pooled.Final {
			t.Errorf("step %d: %+v", i, *p.Pooled)
		}
	}
	if pooled > own/2 {
		t.Errorf("pooled they are off by %.4f, alone by %.4f", pooled/steps, own/steps)
	}
	for width, want := range map[float64]bool{0.1: true, 0.0005: false} {
		parts, _, err = asker.Split(t.Context(), about, Split{Step: 10 * time.Second, Function: "parse", Pooled: true, Width: width})
		if err != nil || parts[steps-1].Pooled.Final != want {
			t.Errorf("the last step, where +-%g is wanted: %+v, %v", width, *parts[steps-1].Pooled, err)
		}
	}
}

// TestPooledInParts has a change within a step: it is as well known as others where rows
// tell when they were sampled.
func TestPooledInParts(t *testing.T) {
	const steps, slots, change, samples = 30, 10, 147, 40 // the change is in slots
	rng := rand.New(rand.NewPCG(1, 1))
	told, untold := &shelf{}, &shelf{}
	truth := make([]float64, steps)
	for slot := range steps * slots {
		share, parse := 0.4, int64(0)
		if slot >= change {
			share = 0.1
		}
		for range samples {
			if rng.Float64() < share {
				parse++
			}
		}
		truth[slot/slots] += share / slots
		w := cut("a", time.Duration(slot/slots)*10*time.Second, 10*time.Second, 4, map[string]int64{"main;serve;parse": parse, "main;gc": samples - parse})
		untold.windows = append(untold.windows, w)
		w.head.Slot, w.part = time.Second, strconv.Itoa(slot%slots+1)
		told.windows = append(told.windows, w)
	}
	at := func(kept *shelf) Pooled {
		asker := Asker{Store: kept, Tenant: "x", Now: func() time.Time { return noon.Add(time.Hour) }}
		about := about(t, `{service="shop"}`)
		about.To = noon.Add(steps * 10 * time.Second)
		parts, _, err := asker.Split(t.Context(), about, Split{Step: 10 * time.Second, Function: "parse", Pooled: true})
		if err != nil || len(parts) != steps {
			t.Fatal(len(parts), err)
		}
		return *parts[change/slots].Pooled
	}
	known, guessed, want := at(told), at(untold), truth[change/slots]
	if off, was := math.Abs(known.Share.Value-want), math.Abs(guessed.Share.Value-want); off > 0.01 || known.Share.Width() > 0.7*guessed.Share.Width() {
		t.Errorf("%+v, off by %.4f; not told in parts %+v, by %.4f", known, off, guessed, was)
	}
}

func TestNotPooled(t *testing.T) {
	for _, by := range []Split{{Step: time.Minute}, {Function: "parse"}, {Step: time.Minute, Function: "parse", By: "instance"}} {
		by.Pooled = true
		if _, _, err := shop().Split(t.Context(), about(t, `{service="shop"}`), by); !errors.Is(err, ErrNotPooled) {
			t.Errorf("%+v: %v", by, err)
		}
	}
}
