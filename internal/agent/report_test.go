package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/spec"
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

// reportFor has an agent report for so long.
func reportFor(t *testing.T, a *Agent, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	a.reportUntil(ctx)
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
		reportFor(t, a, time.Minute)
		if d.reports < 2 {
			t.Errorf("%d reports in a minute, of which the first was not answered", d.reports)
		}
	})
}

// picky is a server that refuses reports, for a reason.
type picky struct {
	orderer
	reports int
	reason  func(reports int) error
}

func (p *picky) Report(context.Context, *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	p.reports++
	return &atysv1.ReportResponse{}, p.reason(p.reports)
}

// TestRefusedReports has reports be refused for good: somebody is told, but not each
// time.
func TestRefusedReports(t *testing.T) {
	b := newBench(t, 1)
	var said bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p := &picky{reason: func(n int) error {
			switch {
			case n <= 4:
				return connect.NewError(connect.CodeInvalidArgument, errors.New("label one is too long"))
			case n == 5:
				return connect.NewError(connect.CodeUnavailable, errors.New("not now"))
			case n <= 7:
				return connect.NewError(connect.CodeInvalidArgument, errors.New("label two is too long"))
			case n == 8:
				return nil
			}
			return connect.NewError(connect.CodeInvalidArgument, errors.New("label two is too long"))
		}}
		a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Fleet: p, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatal(err)
		}
		reportFor(t, a, 10*time.Minute)
		if p.reports < 10 {
			t.Errorf("%d reports in ten minutes", p.reports)
		}
	})
	if one, two := strings.Count(said.String(), "label one"), strings.Count(said.String(), "label two"); one != 1 || two != 2 || strings.Contains(said.String(), "not now") {
		t.Errorf("said %s", said.String())
	}
}

// TestUnsayableReports has other programs say what is no text: reports get through all
// the same, and one that cannot is for somebody to see.
func TestUnsayableReports(t *testing.T) {
	b := newBench(t, 1)
	var said bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p := &picky{reason: func(int) error { return connect.NewError(connect.CodeInternal, errors.New("marshal message")) }}
		a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Fleet: p, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatal(err)
		}
		one := newTask("1", spec.Builtin(), time.Time{})
		one.phase, one.message = phaseFailed, "perf failed: /tmp/\xff"+strings.Repeat("é", 4000)
		a.tasks = []*task{one}
		a.publish()
		r := a.report()
		if message := r.GetTasks()[0].GetMessage(); cannotBeSent(r, nil) != nil || len(message) > 2000 || !strings.HasPrefix(message, "perf failed: /tmp/\ufffdé") {
			t.Errorf("%v: %d bytes, %.40q", cannotBeSent(r, nil), len(message), message)
		}
		reportFor(t, a, time.Minute)
		if said.Len() > 0 {
			t.Errorf("said %s", said.String())
		}
		a.options.Node = "\xff"
		reportFor(t, a, 5*time.Minute)
	})
	if n := strings.Count(said.String(), "reports do not get through"); n != 1 || !strings.Contains(said.String(), errUnsendable.Error()) {
		t.Errorf("said %s", said.String())
	}
}
