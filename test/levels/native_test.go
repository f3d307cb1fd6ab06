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
	"atys.dev/atys/test/process"
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

// instances starts two instances of the service, and gives the program of agents.
func instances(t *testing.T) (program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an agent records as root")
	}
	dir := t.TempDir()
	program, err := process.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ids := filepath.Join(dir, "ids")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", ids, "atys.dev/atys/test/levels/ids").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	instance(t, ids, "few", 100, 1)
	instance(t, ids, "many", 300, 2)
	return program
}

func apply(t *testing.T, s *faults.Server, object string) {
	t.Helper()
	if _, err := atysv1connect.NewControlClient(s.Client(), s.URL()).Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{object}}); err != nil {
		t.Fatal(err)
	}
}

// TestSharesOfInstances has two instances of a service call a library's function,
// one of them three times as often for each request. Two agents sample both: what
// one has goes to the server as it is, what the other has is added up by a relay. The
// share of the function in all is the mean of those of the instances, weighted by the
// time that they used, at each level; and who calls it is told, not only what it is.
func TestSharesOfInstances(t *testing.T) {
	program := instances(t)
	from := time.Now().Add(-time.Minute)
	s := sampled(t, program)
	apply(t, s, `{"kind":"Profile","name":"ids","select":"{service=\"ids\"}","frequency":999,"window":"1s"}`)

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

// TestOneWindowOfAllAgents has two agents sample two instances of a service behind a
// relay that adds up. They begin their windows some moments apart: the server keeps
// one for each edge, and not one for each agent.
func TestOneWindowOfAllAgents(t *testing.T) {
	s, relay := added(t, instances(t), "service")
	for _, node := range []string{"one", "other"} {
		agent(t, s, relay.URL(), node, "--label", "zone=far")
	}
	apply(t, s, `{"kind":"Profile","name":"ids","select":"{service=\"ids\"}","frequency":99,"window":"10s"}`)
	ask := atysv1connect.NewQueryClient(s.Client(), s.URL())
	about := &atysv1.Selection{Select: `{service="ids"}`, Kind: "cpu", ToUnixNano: time.Now().Add(time.Hour).UnixNano()}
	const patience = 4 * time.Minute
	for began := time.Now(); ; time.Sleep(time.Second) {
		about.FromUnixNano = time.Now().Add(-time.Minute).UnixNano() // what was late once is forgotten
		kept, err := ask.Windows(t.Context(), &atysv1.WindowsRequest{Selection: about})
		if err != nil {
			t.Fatal(err)
		}
		all, err := ask.Split(t.Context(), &atysv1.SplitRequest{Selection: about})
		if err != nil {
			t.Fatal(err)
		}
		cut := 0
		for _, p := range all.GetParts() {
			cut += int(p.GetWindows())
		}
		// Four are cut at an edge. Of the first a late agent may miss some, and a machine
		// that is busy may have windows come when others have gone.
		if n := len(kept.GetWindows()); cut >= 12 && 3*n <= cut {
			t.Logf("%d windows are kept of %d", n, cut)
			return
		} else if time.Since(began) > patience {
			t.Fatalf("%d windows are kept of %d: %s", n, cut, s.Log())
		}
	}
}

// sampled starts a server, and two agents of this machine: one of them in a zone that
// has a relay, which adds up.
func sampled(t *testing.T, program string) *faults.Server {
	t.Helper()
	s, relay := added(t, program, "service,node")
	agent(t, s, s.URL(), "direct")
	agent(t, s, relay.URL(), "through", "--label", "zone=far")
	return s
}

// added starts a server, and a relay of a zone that adds up.
func added(t *testing.T, program, keep string) (*faults.Server, *faults.Relay) {
	t.Helper()
	s := &faults.Server{Program: program, Dir: t.TempDir(), Args: []string{"--group-by", "zone"}}
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	relay, err := faults.NewRelay(s, s, t.TempDir(), "relay", "--merge", keep, "--label", "zone=far")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Kill() })
	return s, relay
}

func agent(t *testing.T, s *faults.Server, url, node string, args ...string) {
	t.Helper()
	a, err := faults.NewAgent(s, url, t.TempDir(), node, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Kill() })
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
