package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/wire/atysv1"
)

// dated is an orderer that tells its clock, but not at once.
type dated struct {
	*orderer
	after time.Time
}

func (d *dated) Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	time.Sleep(time.Until(d.after))
	now := time.Now().UnixNano()
	_, err := d.orderer.Report(ctx, r)
	return &atysv1.ReportResponse{ReceivedUnixNano: now}, err
}

// TestWrongClock has an agent whose clock is an hour ahead carry out a task that
// ends soon: it comes before anybody has compared the clocks.
func TestWrongClock(t *testing.T) {
	b, s := newBench(t, 14), &studio{open: map[*take]bool{}}
	b.server.away = true
	began := time.Now()
	e := &employed{&orderer{orders: make(chan *atysv1.Orders)}, s, b, "", nil}
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Fleet: &dated{e.orderer, began.Add(500 * time.Millisecond)}, Record: s.record,
		Now: func() time.Time { return time.Now().Add(time.Hour).Round(0) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	until := began.Add(2 * time.Second)
	e.orders <- ordered(1, &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"x","frequency":99,"duration":"2s"}`, UntilUnixNano: until.UnixNano()})
	e.await(t, e.takes, builtinTake+"; cpu-clock 99 all")
	e.await(t, e.takes, builtinTake)
	if late := time.Since(until); late < -500*time.Millisecond || late > lateStart {
		t.Errorf("it ended %v after its time", late)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDateAgain has the clocks be compared after a task has come.
func TestDateAgain(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "right": 0} {
		b := newBench(t, 15)
		a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Now: func() time.Time { return time.Now().Add(ahead).Round(0) }})
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(20 * time.Second)
		orders := ordered(1, &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"x","select":"{service=\"nobody\"}","duration":"1m"}`, UntilUnixNano: until.UnixNano()})
		one := a.understand(orders)[0]
		a.tasks = []*task{one}
		if dateAgain(a.tasks, a.shipper.reading(), a.options.Now()); !one.unsure {
			t.Errorf("%s: nobody has compared the clocks, and it is known when the task ends", name)
		}
		now := time.Now().UnixNano()
		a.shipper.compare(a.shipper.now(), &atysv1.PushResponse{ReceivedUnixNano: now, AnsweredUnixNano: now})
		<-a.shipper.dated
		if dateAgain(a.tasks, a.shipper.reading(), a.options.Now()); one.unsure || one.ends().Sub(until).Abs() > time.Second {
			t.Errorf("%s: it ends %v after its time", name, one.ends().Sub(until))
		}
		if again := a.understand(orders)[0]; again.unsure || again.ends().Sub(until).Abs() > time.Second {
			t.Errorf("%s: one that comes later ends %v after its time", name, again.ends().Sub(until))
		}
	}
}

// TestPlausible tells when a task ends whose server's clock nobody knows.
func TestPlausible(t *testing.T) {
	came := time.Now()
	for name, c := range map[string]struct{ duration, end, want time.Duration }{
		"long ago":         {time.Minute, -time.Hour, compareWithin},
		"short, long ago":  {time.Second, -time.Hour, time.Second},
		"as it may be":     {time.Minute, 40 * time.Second, 40 * time.Second},
		"far away":         {time.Minute, time.Hour, time.Minute},
		"nobody knows how": {0, time.Hour, time.Hour},
	} {
		one := forAWhile("x", 19)
		one.profile.Duration, one.came, one.end, one.unsure = c.duration, came, came.Add(c.end), true
		if got := one.ends().Sub(came); got != c.want {
			t.Errorf("%s: it ends after %v, want %v", name, got, c.want)
		}
		if one.unsure = false; one.ends() != one.end {
			t.Errorf("%s: a clock that was compared is not believed", name)
		}
	}
}

// TestOrdersOfANewerServer has a profile with a field that this version does not
// know: it is carried out, and its status says what is ignored.
func TestOrdersOfANewerServer(t *testing.T) {
	b := newBench(t, 16)
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server})
	if err != nil {
		t.Fatal(err)
	}
	tasks := a.understand(ordered(1, &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"x","frequency":99,"colour":"red"}`},
		&atysv1.Task{Id: "2", Profile: `{"kind":"Variance","name":"y"}`}))
	if one := tasks[0]; one.profile.Name != "x" || one.phase != phaseStarting || !strings.Contains(one.caveat, "colour") {
		t.Errorf("%+v, want it to begin, without its colour", one)
	}
	if other := tasks[1]; other.phase != phaseFailed {
		t.Errorf("%+v, want a kind that is not known to fail", other)
	}
}
