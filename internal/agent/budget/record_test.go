package budget

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

func TestRecord(t *testing.T) {
	want := Decision{At: time.Date(2026, 11, 20, 12, 0, 0, 5, time.UTC), Cause: "naming", Knob: Naming, From: .002, To: .001, Why: "symbolizing took 3% of a core"}
	r, err := want.Record(profile.Labels{"node": "n1"}, profile.Run{1}, 7)
	if err != nil || r.Check() != nil || r.Sequence != 7 || r.Run != (profile.Run{1}) || !r.Start.Equal(want.At) {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, err := DecisionOf(&r); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, change := range []func(r *profile.Record){
		func(r *profile.Record) { r.Kind = "rate-decision" },
		func(r *profile.Record) { r.Version++ },
		func(r *profile.Record) { r.Encoding = "other" },
		func(r *profile.Record) { r.Payload = []byte("{") },
	} {
		wrong := r
		change(&wrong)
		if d, err := DecisionOf(&wrong); err == nil {
			t.Errorf("read as %+v", d)
		}
	}
}
