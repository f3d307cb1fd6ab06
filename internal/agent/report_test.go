package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"atys.dev/atys/internal/wire/atysv1"
)

// dark is a server of which the first report is never answered, as by one that has
// lost its power.
type dark struct {
	orderer
	reports int
}

func (d *dark) Report(ctx context.Context, _ *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	if d.reports++; d.reports == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &atysv1.ReportResponse{}, nil
}

// TestReportsGoOn has a report be waited for no longer than it is of use.
func TestReportsGoOn(t *testing.T) {
	b := newBench(t, 1)
	synctest.Test(t, func(t *testing.T) {
		d := &dark{}
		a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Fleet: d})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			a.reportUntil(ctx)
			close(done)
		}()
		time.Sleep(time.Minute)
		cancel()
		<-done
		if d.reports < 2 {
			t.Errorf("%d reports in a minute, of which the first was not answered", d.reports)
		}
	})
}
