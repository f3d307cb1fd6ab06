package levels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/faults"
)

// library is what instances call to make ids.
const library = "math/rand/v2.(*ChaCha8).Read"

// instance starts one instance of the service, which lasts as long as the test.
func instance(t *testing.T, program, name string, number, seed int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, fmt.Sprint(number), "400", fmt.Sprint(seed))
	c.Env = append(os.Environ(), "OTEL_SERVICE_NAME=ids", "OTEL_RESOURCE_ATTRIBUTES=service.instance.id="+name)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // it is killed when the test ends
}

// TestSharesOfInstances has two instances of a service call a library's function,
// one of them three times as often for each request. Two agents sample both: what
// one has goes to the server as it is, what the other has is added up by a relay. The
// share of the function in all is the mean of those of the instances, weighted by the
// time that they used, at each level; and who calls it is told, not only what it is.
func TestSharesOfInstances(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an agent records as root")
	}
	dir := t.TempDir()
	program, err := faults.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ids := filepath.Join(dir, "ids")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", ids, "atys.dev/atys/test/levels/ids").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	from := time.Now().Add(-time.Minute)
	instance(t, ids, "few", 100, 1)
	instance(t, ids, "many", 300, 2)

	s := sampled(t, program)
	const object = `{"kind":"Profile","name":"ids","select":"{service=\"ids\"}","frequency":999,"window":"1s"}`
	if _, err := atysv1connect.NewControlClient(s.Client(), s.URL()).Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{object}}); err != nil {
		t.Fatal(err)
	}

	ask := &Asker{HTTPClient: s.Client(), URL: s.URL(), Function: library, Kind: "cpu", From: from, To: from.Add(time.Hour)}
	var there []Share
	enough := func() bool {
		direct, err := ask.ByInstance(t.Context(), `{service="ids",node="direct"}`)
		through, wrong := ask.ByInstance(t.Context(), `{service="ids",node="through"}`)
		there = append(direct, through...)
		return err == nil && wrong == nil && len(there) == 3 && min(there[0].N, there[1].N) >= 80 && there[2].N >= 120
	}
	const patience = 4 * time.Minute // a machine that does more than it can gives the instances little time
	for began := time.Now(); !enough(); time.Sleep(500 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("there are not enough samples: %+v: %s", there, s.Log())
		}
	}
	ask.To = time.Now().Truncate(time.Second)
	if err := ask.Settled(t.Context(), patience, `{service="ids",node="direct"}`, `{service="ids",node="through"}`); err != nil {
		t.Fatal(err)
	}
	compare(t, ask)
}

// sampled starts a server, and two agents of this machine: one of them in a zone that
// has a relay, which adds up.
func sampled(t *testing.T, program string) *faults.Server {
	t.Helper()
	s := &faults.Server{Program: program, Dir: t.TempDir(), Args: []string{"--group-by", "zone"}}
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	relay, err := faults.NewRelay(s, s, t.TempDir(), "relay", "--merge", "service,node", "--label", "zone=far")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Kill() })
	direct, err := faults.NewAgent(s, s.URL(), t.TempDir(), "direct", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { direct.Kill() })
	through, err := faults.NewAgent(s, relay.URL(), t.TempDir(), "through", nil, "--label", "zone=far")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { through.Kill() })
	return s
}

// compare holds the shares of each level against the instances'.
func compare(t *testing.T, ask *Asker) {
	t.Helper()
	parts, err := ask.ByInstance(t.Context(), `{service="ids",node="direct"}`)
	if err != nil || len(parts) != 2 {
		t.Fatalf("%v: %v", parts, err)
	}
	through, err := ask.ByInstance(t.Context(), `{service="ids",node="through"}`)
	if err != nil || len(through) != 1 || through[0].Of != "" {
		t.Fatalf("a relay that adds up keeps instances apart: %v, %v", through, err)
	}
	mean := Mean(parts)
	t.Logf("instances %v, mean %v", parts, mean.Interval)
	if few, many := parts[0], parts[1]; few.Of != "few" || many.Of != "many" {
		t.Errorf("instances are %q and %q", few.Of, many.Of)
	}
	for level, selector := range map[string]string{"server": `{service="ids",node="direct"}`, "relay": `{service="ids",node="through"}`, "both": `{service="ids"}`} {
		merged, err := ask.Merged(t.Context(), selector)
		if err != nil {
			t.Errorf("%s: %v", level, err)
			continue
		}
		// One interval in twenty does not hold, and this is no test of intervals: twice as far is.
		d := stats.Difference(mean.Interval, merged.Interval)
		t.Logf("%s: %v of %v, %.4f from the mean (%.4f to %.4f)", level, merged.Interval, merged.CPU, d.Value, d.Low, d.High)
		if d.Low-d.Width()/2 > 0 || d.High+d.Width()/2 < 0 {
			t.Errorf("%s: the share is %v, the mean of the instances' %v", level, merged.Interval, mean.Interval)
		}
		if level == "server" && merged.CPU != mean.CPU {
			t.Errorf("%s: exactly %v was used, by the instances %v", level, merged.CPU, mean.CPU)
		}
		callers, err := ask.Callers(t.Context(), selector)
		if err != nil {
			t.Errorf("%s: %v", level, err)
			continue
		}
		share := map[string]float64{}
		for _, f := range callers {
			share[f.GetFunction()] = f.GetSelf().GetShare().GetValue()
			if strings.Contains(f.GetFunction(), "rand") {
				t.Errorf("%s: %s is charged, a library's function", level, f.GetFunction())
			}
		}
		if share["main.makeFew"] <= 0 || share["main.makeMany"] <= share["main.makeFew"] {
			t.Errorf("%s: who calls %s: %v", level, library, share)
		}
	}
}
