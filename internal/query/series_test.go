package query

import (
	"math"
	"testing"
	"time"
)

// TestSplitOfService has intervals of the service where a part is of several
// instances, which differ: they are wider than those of the selection.
func TestSplitOfService(t *testing.T) {
	for _, test := range []struct {
		by    Split
		known bool
	}{
		{Split{By: "service"}, true},
		{Split{By: "service", Function: "parse"}, true},
		{Split{By: "instance"}, false},
		{Split{By: "instance", Function: "parse"}, false},
	} {
		parts, _, err := shops().Split(t.Context(), about(t, `{service="shop"}`), test.by)
		if err != nil || len(parts) == 0 {
			t.Fatal(parts, err)
		}
		for _, p := range parts {
			if p.ServiceKnown != test.known {
				t.Errorf("%+v: %+v", test.by, p)
			}
			if test.by.Function != "" && p.ServiceKnown && (p.Service.Width() <= p.Share.Width() || math.Abs(p.Service.Value-p.Share.Value) > 1e-9) {
				t.Errorf("%+v: service %+v, selection %+v", test.by, p.Service, p.Share)
			}
		}
	}
	parts, _, err := shops().Split(t.Context(), about(t, `{service="shop"}`), Split{Step: 2 * time.Minute})
	if err != nil || len(parts) != 2 || !parts[0].ServiceKnown || parts[1].ServiceKnown || parts[0].Service.Width() <= parts[0].Share.Width() {
		t.Errorf("of three instances, then of one: %+v, %v", parts, err)
	}
}
