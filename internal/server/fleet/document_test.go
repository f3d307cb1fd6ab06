package fleet

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"atys.dev/atys/internal/wire/atysv1"
)

// TestDocuments compares documents with those that servers sent before they sent
// statuses (commit 1b67057): commands of that time read them, and users' programs.
func TestDocuments(t *testing.T) {
	want, err := os.ReadFile("testdata/documents.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := command(t, "")
	c.Fleet.relays.groupBy = "zone"
	c.now = noon.Add(123456000)
	c.apply(t, `{"kind":"Profile","name":"a","duration":"30s","instances":2}`, `{"kind":"Profile","name":"b","select":"{service=~\"<shop|cart>\"}"}`)
	state := &atysv1.NodeState{WaitingWindows: 3, ShippedWindows: 1 << 40, LostWindows: 2, ClockOffsetNs: 1500, ClockErrorNs: 12, CpuNs: 1e9, MemoryBytes: 1 << 30,
		StartedUnixNano: c.now.UnixNano(), MetricsAddress: "x:1", Cost: &atysv1.Cost{UserNs: 1, BpfNs: 2, InterruptNs: 3}, Cores: 0.01, CoresBudget: math.NaN(),
		MemoryBudget: 5, MapBytes: 6, BudgetMessage: "m<", CapHertz: 99, LastEnd: "killed", OverBudget: true,
		Causes:     []*atysv1.CauseTime{{Cause: "tables", Ns: 5, Cores: 1}},
		Decisions:  []*atysv1.BudgetDecision{{UnixNano: 5, Cause: "c", Knob: "k", From: 1, To: 2, Why: "w", Relaxes: true}},
		Conditions: []*atysv1.Condition{{Kind: "k", SinceUnixNano: 7, Value: 0.5, Message: "m", Fix: "f"}}}
	for i, state := range []*atysv1.NodeState{state, nil, {ClockErrorNs: math.MaxInt64}} {
		target := &atysv1.Target{Labels: map[string]string{"service": "s", "i": fmt.Sprint(i)}, Processes: 4}
		task := &atysv1.TaskState{Id: "x", Phase: "running", Targets: 1, Frequency: 99}
		r := &atysv1.ReportRequest{Node: fmt.Sprint("n", i), Version: "v", State: state, Targets: []*atysv1.Target{target}, Tasks: []*atysv1.TaskState{task}}
		if _, err := c.Service.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	stands, leave := standing(t, c.Service, &atysv1.OfferRequest{Name: "r", Address: "http://r:1", Version: "v", Labels: map[string]string{"zone": "a"}})
	defer leave()
	<-stands
	var got strings.Builder
	for _, kind := range []string{kindProfiles, kindAgents, kindTargets, kindRelays} {
		r, err := c.Get(t.Context(), &atysv1.GetRequest{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range r.GetObjects() {
			fmt.Fprintln(&got, o.GetKind(), o.GetName(), o.GetJson())
		}
	}
	if got.String() != string(want) {
		t.Errorf("documents are\n%swant\n%s", got.String(), want)
	}
}
