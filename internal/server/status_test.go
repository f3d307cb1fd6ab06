package server

import (
	"net/http/httptest"
	"testing"
	"time"

	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// TestStatus tells everybody as whom they are known, and what is of the whole
// machine to the server's own tenant alone.
func TestStatus(t *testing.T) {
	admission, as := admitted(t)
	now := noon
	s, err := New(Options{Store: mem.New(1), Admission: admission, Version: "v1", Disk: t.TempDir(), Debug: Debug{Dir: t.TempDir()}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	pushed, _ := request(t, false, "shop", noon.Add(-time.Minute))
	if _, err := atysv1connect.NewIntakeClient(as(h, "default/agent"), h.URL).Push(t.Context(), pushed); err != nil {
		t.Fatal(err)
	}
	s.options.Store.(*mem.Store).Settle()
	ask := func(who string) *atysv1.StatusResponse {
		t.Helper()
		status, err := atysv1connect.NewControlClient(as(h, who), h.URL).Status(t.Context(), &atysv1.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if _, err := atysv1connect.NewControlClient(as(h, "default/agent"), h.URL).Status(t.Context(), &atysv1.StatusRequest{}); err == nil {
		t.Error("an agent is told")
	}
	status := ask("default/reader")
	m := status.GetMachine()
	if status.GetVersion() != "v1" || status.GetProtocol() != wire.Protocol || status.GetTenant() != "default" || status.GetRole() != "reader" || status.GetReceivedUnixNano() != noon.UnixNano() {
		t.Errorf("%v", status)
	}
	if m.GetDiskBytes() == 0 || m.GetDiskFreeBytes() > m.GetDiskBytes() || m.GetPushes()["ok"] != 1 || m.GetRefused()["permission_denied"] != 1 || m.GetOverdueSteps() != 0 {
		t.Errorf("of the machine %v", m)
	}
	now = noon.Add(5 * time.Hour)
	if m := ask("default/reader").GetMachine(); m.GetOverdueSteps() != 5 {
		t.Errorf("nobody has added up: %d steps are overdue, want one of each level", m.GetOverdueSteps())
	}
	what := map[string]uint64{}
	for _, q := range status.GetQuotas() {
		if q.GetMost() == 0 || q.GetUsed() > q.GetMost() {
			t.Errorf("quota %v", q)
		}
		what[q.GetWhat()] = q.GetMost()
	}
	if what["profiles"] != 1000 || what["bytes of debug files"] != debugBytes {
		t.Errorf("quotas of %v", what)
	}
	if status := ask("other/operator"); status.GetMachine() != nil || status.GetTenant() != "other" || status.GetRole() != "operator" || len(status.GetQuotas()) == 0 {
		t.Errorf("another tenant is told %v", status)
	}
}
