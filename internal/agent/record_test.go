package agent

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// nobody takes what is shipped.
type nobody struct{}

func (nobody) Push(context.Context, *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	return &atysv1.PushResponse{}, nil
}

// TestDecisionsAreRecorded spools each decision on the budget as a record of its own.
func TestDecisionsAreRecorded(t *testing.T) {
	waiting, err := spool.Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	a, err := New(Options{Node: "n1", Labels: profile.Labels{"zone": "a"}, Records: waiting, Intake: nobody{}})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	a.carryOut([]budget.Decision{{At: at, Cause: "naming", Knob: budget.Naming, To: .002, Why: "first"}, {At: at, Cause: "tables", Knob: budget.Tables, To: .002, Why: "second"}})
	a.closing.Wait()
	a.carryOut([]budget.Decision{{At: at, Cause: "naming", Knob: budget.Naming, From: .002, Why: "third"}})
	a.carryOut(nil)
	a.closing.Wait()
	var why []string
	for _, id := range waiting.Oldest(9) {
		entries, err := waiting.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range entries {
			var s atysv1.Spooled
			if err := proto.Unmarshal(data, &s); err != nil {
				t.Fatal(err)
			}
			r, err := wire.OpenRecord(s.GetRecord(), s.GetSeries())
			if err != nil {
				t.Fatal(err)
			}
			d, err := budget.DecisionOf(&r)
			if err != nil || r.Series["node"] != "n1" || r.Series["zone"] != "a" || r.Run != a.run || r.Sequence != uint64(len(why)+1) {
				t.Errorf("%+v is %+v, %v", r, d, err)
			}
			why = append(why, d.Why)
		}
	}
	if len(why) != 3 || why[0] != "first" || why[1] != "second" || why[2] != "third" {
		t.Errorf("recorded are %q", why)
	}
}
