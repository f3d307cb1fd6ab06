package freq

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

func TestRecord(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	want := Decided{Task: "always", Service: "shop", Hertz: 99.5, Policy: "atys", Reason: Changed, Why: "divergence 0.3 > 0.05", From: at, To: at.Add(10 * time.Second)}
	r, err := want.Record()
	if err != nil || r.Check() != nil || r.Series["service"] != "shop" || !r.Start.Equal(want.To) {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, err := DecidedOf(&r); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	other := want
	other.Task = "other"
	if o, err := other.Record(); err != nil || o.Run == r.Run {
		t.Errorf("records of two tasks have one run: %v", err)
	}
	for _, change := range []func(r *profile.Record){
		func(r *profile.Record) { r.Kind = "budget-decision" },
		func(r *profile.Record) { r.Version++ },
		func(r *profile.Record) { r.Encoding = "other" },
		func(r *profile.Record) { r.Payload = []byte("{") },
	} {
		wrong := r
		change(&wrong)
		if d, err := DecidedOf(&wrong); err == nil {
			t.Errorf("read as %+v", d)
		}
	}
}
