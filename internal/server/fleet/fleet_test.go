package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// noRates are those of profiles without a policy.
type noRates struct{}

func (noRates) Follow(string, time.Time, *spec.Profile)  {}
func (noRates) Forget(string)                            {}
func (noRates) Of(string, string) (profile.Rate, bool)   { return profile.Rate{}, false }
func (noRates) OfProfile(string) map[string]profile.Rate { return nil }
func (noRates) Resuming() bool                           { return false }

// served answers the services of a fleet, without its server's status.
type served struct{ *Service }

func (served) Status(context.Context, *atysv1.StatusRequest) (*atysv1.StatusResponse, error) {
	return nil, connect.NewError(connect.CodeUnimplemented, nil)
}

// handler answers requests to a service.
func handler(s *Service) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(atysv1connect.NewControlHandler(served{s}))
	mux.Handle(atysv1connect.NewFleetHandler(s))
	return mux
}

// serve returns a fleet in memory, and its services.
func serve(t *testing.T, groupBy string) (*Fleet, *Service) {
	t.Helper()
	f, err := New(Options{Tenant: "default", GroupBy: groupBy, Rates: noRates{}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, &Service{Of: func(context.Context) (*Fleet, error) { return f, nil }, Now: time.Now}
}

// commanded is a fleet that keeps profiles in a directory, and clients of it.
type commanded struct {
	*Fleet
	*Service
	control atysv1connect.ControlClient
	fleet   atysv1connect.FleetClient
	now     time.Time
}

func command(t *testing.T, dir string) *commanded {
	t.Helper()
	c := &commanded{now: noon}
	if dir != "" {
		dir = filepath.Join(dir, "default")
	}
	now := func() time.Time { return c.now }
	var err error
	if c.Fleet, err = New(Options{Tenant: "default", Profiles: dir, Rates: noRates{}, Now: now, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	c.Service = &Service{Of: func(context.Context) (*Fleet, error) { return c.Fleet, nil }, Now: now}
	h := httptest.NewServer(handler(c.Service))
	t.Cleanup(h.Close)
	t.Cleanup(c.Fleet.Close)
	c.control, c.fleet = atysv1connect.NewControlClient(h.Client(), h.URL), atysv1connect.NewFleetClient(h.Client(), h.URL)
	return c
}

func (c *commanded) apply(t *testing.T, objects ...string) {
	t.Helper()
	if _, err := c.control.Apply(t.Context(), &atysv1.ApplyRequest{Objects: objects}); err != nil {
		t.Fatal(err)
	}
}

// status gives a profile as clients get it.
func (c *commanded) status(t *testing.T, name string) *atysv1.ProfileStatus {
	t.Helper()
	response, err := c.control.Get(t.Context(), &atysv1.GetRequest{Kind: "profiles", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetObjects()[0].GetProfile()
}

// agent gives an agent as clients get it.
func (c *commanded) agent(t *testing.T, node string) *atysv1.AgentStatus {
	t.Helper()
	response, err := c.control.Get(t.Context(), &atysv1.GetRequest{Kind: "agents", Name: node})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetObjects()[0].GetAgent()
}

// ids are those of what an agent is to do.
func (c *commanded) ids(t *testing.T, node string) map[string]string {
	t.Helper()
	orders, _, _ := c.Fleet.orders(node, 0)
	ids := map[string]string{}
	for _, task := range orders.GetTasks() {
		var p struct{ Name string }
		_ = json.Unmarshal([]byte(task.GetProfile()), &p) // a bad one has no name, which tests see
		ids[p.Name] = task.GetId()
	}
	return ids
}

const lasting = `{"kind":"Profile","name":"lasting","frequency":99}`

// TestProfilesAreKept applies, changes and deletes profiles, over restarts and
// with a file that is damaged.
func TestProfilesAreKept(t *testing.T) {
	dir := t.TempDir()
	c := command(t, dir)
	c.apply(t, lasting, `{"kind":"Profile","name":"short","duration":"30s"}`)
	first := c.ids(t, "n")
	if len(first) != 2 {
		t.Fatalf("tasks %v", first)
	}
	c.apply(t, lasting)
	if again := c.ids(t, "n"); again["lasting"] != first["lasting"] {
		t.Error("what is applied again as it was begins anew")
	}
	c.apply(t, `{"kind":"Profile","name":"short","duration":"30s"}`)
	if again := c.ids(t, "n"); again["short"] == first["short"] {
		t.Error("what lasts a while, and is applied again, does not begin anew")
	}
	c.apply(t, strings.Replace(lasting, "99", "199", 1))
	changed := c.ids(t, "n")
	if changed["lasting"] == first["lasting"] {
		t.Error("a profile that changed is the same task")
	}
	if err := os.WriteFile(filepath.Join(dir, "default", "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = command(t, dir)
	if kept := c.ids(t, "n"); len(kept) != 2 || kept["lasting"] != changed["lasting"] {
		t.Errorf("after a restart %v, want %v", kept, changed)
	}
	if p := c.status(t, "lasting"); !strings.Contains(p.GetProfile(), `"frequency":199`) || p.GetPhase() != "waiting" || p.GetCreatedUnixNano() != noon.UnixNano() {
		t.Errorf("%+v", p)
	}
	if _, err := os.Stat(filepath.Join(dir, "default", "bad.json.damaged")); err != nil {
		t.Error(err)
	}
	c.now = noon.Add(2 * time.Minute)
	if left := c.ids(t, "n"); len(left) != 1 || c.status(t, "short").Phase != "done" {
		t.Errorf("after its time %v", left)
	}
	if _, err := c.control.Delete(t.Context(), &atysv1.DeleteRequest{Kind: "profiles", Name: "lasting"}); err != nil {
		t.Fatal(err)
	}
	if left := command(t, dir).ids(t, "n"); len(left) != 1 {
		t.Errorf("after a restart and a deletion %v", left)
	}
}

// TestRoomForProfiles has more be asked for than are kept: those whose time is over
// give way, the oldest first.
func TestRoomForProfiles(t *testing.T) {
	c := command(t, t.TempDir())
	brief := func(i int) string {
		return fmt.Sprintf(`{"kind":"Profile","name":"p%d","duration":"%ds"}`, i, i+1)
	}
	var all []string
	for i := range maxProfiles - 1 {
		all = append(all, brief(i))
	}
	c.apply(t, append(all, lasting)...)
	apply := func(objects ...string) error {
		_, err := c.control.Apply(t.Context(), &atysv1.ApplyRequest{Objects: objects})
		return err
	}
	if err := apply(brief(maxProfiles)); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	c.now = noon.Add(lateAgents + 3500*time.Millisecond) // the times of three are over, also for agents that are late
	if err := apply(all[0], brief(maxProfiles), brief(maxProfiles+1), brief(maxProfiles+2)); connect.CodeOf(err) != connect.CodeResourceExhausted || c.Fleet.profiles.of["p1"] == nil {
		t.Errorf("three more, where two could give way: %v", err)
	}
	if err := apply(all[0], brief(maxProfiles)); err != nil {
		t.Errorf("one too many, where others are done: %v", err)
	}
	kept := c.Fleet.profiles.of
	if len(kept) != maxProfiles || kept["p0"] == nil || kept["p1"] != nil || kept["p2"] == nil || kept["lasting"] == nil {
		t.Errorf("%d are kept, among them p0 %v, p1 %v, p2 %v", len(kept), kept["p0"], kept["p1"], kept["p2"])
	}
}

// TestNameThatIsTakenNoMore has a server find a profile of before a name was
// refused: it goes on, and can be deleted.
func TestNameThatIsTakenNoMore(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "default"), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := `{"id":"1","created":"2026-11-01T12:00:00Z","profile":{"kind":"Profile","name":"builtin"}}`
	if err := os.WriteFile(filepath.Join(dir, "default", "builtin.json"), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, dir)
	if got := c.ids(t, "n"); got["builtin"] != "1" || !strings.Contains(c.status(t, "builtin").GetProfile(), `"name":"builtin"`) {
		t.Errorf("tasks %v", got)
	}
	if _, err := c.control.Delete(t.Context(), &atysv1.DeleteRequest{Kind: "profiles", Name: "builtin"}); err != nil || len(c.ids(t, "n")) != 0 {
		t.Errorf("it cannot be deleted: %v", err)
	}
}

func TestControlRefuses(t *testing.T) {
	c := command(t, "")
	for object, want := range map[string]string{"kind: Profile": "", `{"kind":"Profile","name":"x","frequency":0.1}`: "frequency: 0.1", `{"kind":"Profile","name":"builtin"}`: "take another name"} {
		_, err := c.control.Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{lasting, object}})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", object, err)
		}
	}
	if len(c.ids(t, "n")) != 0 {
		t.Error("half of what was applied is done")
	}
	if _, err := c.control.Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{lasting, lasting}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("one name twice: %v", err)
	}
	for _, r := range []*atysv1.GetRequest{{Kind: "pods"}, {Kind: "profiles", Name: "none"}} {
		if _, err := c.control.Get(t.Context(), r); err == nil {
			t.Errorf("%v is answered", r)
		}
	}
	for _, r := range []*atysv1.DeleteRequest{{Kind: "agents", Name: "n"}, {Kind: "profiles", Name: "../x"}} {
		if _, err := c.control.Delete(t.Context(), r); err == nil {
			t.Errorf("%v is done", r)
		}
	}
	big := &atysv1.ReportRequest{Node: "n", Targets: []*atysv1.Target{{Labels: map[string]string{"service": strings.Repeat("x", 300)}}}}
	if _, err := c.fleet.Report(t.Context(), big); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a label of 300 bytes: %v", err)
	}
	if _, err := c.fleet.Report(t.Context(), &atysv1.ReportRequest{}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a node without a name: %v", err)
	}
}

// TestOrdersComeAtOnce has an agent attend while profiles are applied.
func TestOrdersComeAtOnce(t *testing.T) {
	c := command(t, "")
	ctx, leave := context.WithCancel(t.Context())
	stream, err := c.fleet.Attend(ctx, &atysv1.AttendRequest{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *atysv1.Orders {
		t.Helper()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		return stream.Msg()
	}
	if o := next(); o.GetUnchanged() || len(o.GetTasks()) != 0 {
		t.Errorf("first orders %v", o)
	}
	c.apply(t, lasting)
	if o := next(); len(o.GetTasks()) != 1 || o.GetTasks()[0].GetUntilUnixNano() != 0 {
		t.Errorf("orders %v", o)
	}
	if o := next(); !o.GetUnchanged() || len(o.GetTasks()) != 0 {
		t.Errorf("the next beat: %v", o)
	}
	agents, err := c.control.Get(t.Context(), &atysv1.GetRequest{Kind: "agents"})
	if err != nil || len(agents.GetObjects()) != 1 || !strings.Contains(agents.GetObjects()[0].GetJson(), `"phase":"connected"`) {
		t.Errorf("agents %v, %v", agents, err)
	}
	c.Fleet.Close()
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("a server that closes lets agents wait: %v", stream.Err())
	}
	leave()
}

func TestWatch(t *testing.T) {
	c := command(t, "")
	c.apply(t, lasting)
	stream, err := c.control.Watch(t.Context(), &atysv1.GetRequest{Kind: "profiles"})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what, name string) {
		t.Helper()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if m := stream.Msg(); m.GetWhat() != what || m.GetObject().GetName() != name {
			t.Errorf("%v, want %s %s", m, what, name)
		}
	}
	expect("added", "lasting")
	expect("synced", "")
	c.apply(t, strings.Replace(lasting, "99", "199", 1))
	expect("changed", "lasting")
	if _, err := c.control.Delete(t.Context(), &atysv1.DeleteRequest{Kind: "profiles", Name: "lasting"}); err != nil {
		t.Fatal(err)
	}
	expect("removed", "lasting")
}

// TestWatchRelaysOfOneName tells two relays apart that have the same name, also at
// the same address, and neither of them again while nothing changes.
func TestWatchRelaysOfOneName(t *testing.T) {
	c := command(t, "")
	var leave []func()
	for _, address := range []string{"http://a:4310", "http://b:4310", "http://b:4310"} {
		offer := offerOf("relay", "a")
		offer.Address = address
		stands, end := standing(t, c.Service, offer)
		<-stands
		leave = append(leave, end)
	}
	stream, err := c.control.Watch(t.Context(), &atysv1.GetRequest{Kind: "relays"})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what, address string) {
		t.Helper()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if m := stream.Msg(); m.GetWhat() != what || !strings.Contains(m.GetObject().GetJson(), address) {
			t.Errorf("%v, want %s of %s", m, what, address)
		}
	}
	expect("added", "http://a")
	expect("added", "http://b")
	expect("added", "http://b")
	expect("synced", "")
	c.report(t, "n", "") // the fleet is looked at again
	time.Sleep(2 * watchPause)
	leave[2]()
	expect("removed", "http://b")
	leave[1]()
	expect("removed", "http://b")
	leave[0]()
	expect("removed", "http://a")
}

// report tells of a node with targets a, b, ... of one service.
func (c *commanded) report(t *testing.T, node string, instances string, states ...*atysv1.TaskState) {
	t.Helper()
	r := &atysv1.ReportRequest{Node: node, Tasks: states}
	for _, i := range instances {
		r.Targets = append(r.Targets, &atysv1.Target{Labels: map[string]string{"node": node, "service": "shop", "instance": string(i)}})
	}
	if _, err := c.fleet.Report(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func (c *commanded) chosen(t *testing.T) (all []string) {
	t.Helper()
	for _, node := range []string{"x", "y"} {
		orders, _, _ := c.Fleet.orders(node, 0)
		for _, s := range orders.GetTasks()[0].GetChosen() {
			all = append(all, node+s.GetLabels()["instance"])
		}
	}
	return all
}

// TestTargetsAreNamed asks for targets as people see them in a list.
func TestTargetsAreNamed(t *testing.T) {
	c := command(t, "")
	c.report(t, "x", "ab")
	c.report(t, "y", "a")
	for name, want := range map[string]int{
		"": 3, "shop": 3, `{node="x"}`: 2, `{service="shop",instance=~"b|c"}`: 1, `{}`: 3,
		`{instance="a", node="y", service="shop"}`: 1, // as the list has it
	} {
		response, err := c.control.Get(t.Context(), &atysv1.GetRequest{Kind: "targets", Name: name})
		if err != nil || len(response.GetObjects()) != want {
			t.Errorf("%q means %v (%v), want %d targets", name, response, err, want)
		}
	}
	for name, want := range map[string]connect.Code{"nobody": connect.CodeNotFound, `{node="z"}`: connect.CodeNotFound, `{node=`: connect.CodeInvalidArgument} {
		if _, err := c.control.Get(t.Context(), &atysv1.GetRequest{Kind: "targets", Name: name}); connect.CodeOf(err) != want {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}

// TestInstancesAreChosen has three of the targets be recorded: they stay the
// same while they are there, and all are as likely to be among them.
func TestInstancesAreChosen(t *testing.T) {
	often := map[string]int{}
	for range 300 {
		c := command(t, "")
		c.report(t, "x", "ab")
		c.report(t, "y", "cde")
		c.apply(t, `{"kind":"Profile","name":"some","select":"{service=\"shop\"}","instances":3}`)
		chosen := c.chosen(t)
		if len(chosen) != 3 {
			t.Fatalf("chosen %v", chosen)
		}
		for _, name := range chosen {
			often[name]++
		}
		c.report(t, "y", "cdefg")
		if again := c.chosen(t); fmt.Sprint(again) != fmt.Sprint(chosen) {
			t.Fatalf("chosen %v, and then %v", chosen, again)
		}
		orders, _, _ := c.Fleet.orders("anybody", 0)
		if task := orders.GetTasks()[0]; task.GetRecorded() != 3 || task.GetEligible() != 7 {
			t.Fatalf("agents are told of %d of %d", task.GetRecorded(), task.GetEligible())
		}
		if p := c.status(t, "some"); p.GetInstances().GetRecorded() != 3 || p.GetInstances().GetEligible() != 7 {
			t.Fatalf("%d of %d", p.GetInstances().GetRecorded(), p.GetInstances().GetEligible())
		}
		c.report(t, "y", "")
		if left := c.chosen(t); len(left) != 2 {
			t.Fatalf("of two targets that are left, chosen are %v", left)
		}
		c.Fleet.Close()
	}
	for name, n := range often {
		if n < 120 || n > 240 { // 180 expected, within 7 standard deviations
			t.Errorf("%s was chosen %d times of 300, want about 180", name, n)
		}
	}
}

// TestInstancesOfSilentAgents has an agent die whose target was chosen: another is.
func TestInstancesOfSilentAgents(t *testing.T) {
	c := command(t, "")
	c.report(t, "x", "a")
	c.apply(t, `{"kind":"Profile","name":"one","select":"{service=\"shop\"}","instances":1}`)
	if got := c.chosen(t); fmt.Sprint(got) != "[xa]" {
		t.Fatalf("chosen %v", got)
	}
	c.now = c.now.Add(silentAfter + time.Second)
	c.report(t, "y", "b")
	if got := c.chosen(t); fmt.Sprint(got) != "[yb]" {
		t.Errorf("chosen %v, of an agent that is silent", got)
	}
	if p := c.status(t, "one"); p.GetInstances().GetRecorded() != 1 || p.GetInstances().GetEligible() != 1 {
		t.Errorf("%d of %d", p.GetInstances().GetRecorded(), p.GetInstances().GetEligible())
	}
}

func TestPhases(t *testing.T) {
	c := command(t, "")
	c.apply(t, lasting)
	id := c.ids(t, "x")["lasting"]
	for _, test := range []struct{ x, y, want string }{
		{"starting", "waiting", "running"}, {"running", "failed", "running"}, {"done", "failed", "failed"}, {"waiting", "waiting", "waiting"},
	} {
		c.report(t, "x", "a", &atysv1.TaskState{Id: id, Phase: test.x, Targets: 1})
		c.report(t, "y", "b", &atysv1.TaskState{Id: id, Phase: test.y})
		if p := c.status(t, "lasting"); p.Phase != test.want || len(p.GetNodes()) != 2 || p.GetNodes()[0].GetState().GetTargets() != 1 {
			t.Errorf("%s and %s: %+v, want %s", test.x, test.y, p, test.want)
		}
	}
}

// TestGoodbye tells agents that end in order from those that are silent, and those
// from what is silent for so long that it will not come back.
func TestGoodbye(t *testing.T) {
	c := command(t, "")
	report := func(node, run string, leaving bool) {
		t.Helper()
		r := &atysv1.ReportRequest{Node: node, Run: []byte(run), Leaving: leaving, State: &atysv1.NodeState{MetricsAddress: node + ":9100"}}
		if _, err := c.fleet.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	counted := func() string {
		agents := map[string]int{}
		c.Fleet.Count(agents)
		return fmt.Sprint(agents)
	}
	phase := func(node string) string {
		return c.agent(t, node).GetPhase()
	}
	for _, node := range []string{"leaves", "dies", "stays"} {
		if err := c.Fleet.connect(&atysv1.AttendRequest{Node: node, Run: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		report(node, "1", false)
	}
	report("leaves", "1", true)
	c.Fleet.disconnect(&atysv1.AttendRequest{Node: "leaves", Run: []byte("1")})
	if got := counted(); got != "map[heard:2 left:1]" || phase("leaves") != "left" || len(c.Fleet.Scraped()) != 2 {
		t.Errorf("one has left: %s, it is %s, %d are to be scraped", got, phase("leaves"), len(c.Fleet.Scraped()))
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{silentAfter + time.Second, "map[heard:1 left:1 silent:1]"}, {goneAfter + time.Second, "map[gone:1 heard:1 left:1]"}} {
		c.now = noon.Add(step.after)
		report("stays", "1", false)
		if got := counted(); got != step.want {
			t.Errorf("%v later: %s, want %s", step.after, got, step.want)
		}
	}
	if err := c.Fleet.connect(&atysv1.AttendRequest{Node: "leaves", Run: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	report("leaves", "2", false)
	report("leaves", "1", true) // it was under way
	if told := c.Fleet.agents.of["leaves"].report; string(told.GetRun()) != "2" {
		t.Errorf("the goodbye of run 1 takes the place of what run %q told", told.GetRun())
	}
	if got := counted(); got != "map[gone:1 heard:2]" || phase("leaves") != "connected" {
		t.Errorf("it is back: %s, %s", got, phase("leaves"))
	}
}

// TestTwoAgentsOfOneName has a second agent come by the name of one that is there.
func TestTwoAgentsOfOneName(t *testing.T) {
	c := command(t, "")
	f := c.Fleet
	var said strings.Builder
	f.log = slog.New(slog.NewTextHandler(&said, nil))
	run := func(run string) *atysv1.AttendRequest { return &atysv1.AttendRequest{Node: "n", Run: []byte(run)} }
	told := func() *atysv1.AgentStatus {
		t.Helper()
		return c.agent(t, "n")
	}
	for _, step := range []struct {
		comes, goes string
		twice       bool
		warnings    int
	}{
		{comes: "1"}, {comes: "1"}, {goes: "1"}, // its connection broke
		{comes: "2", twice: true, warnings: 1}, {goes: "1", warnings: 1},
		{comes: "1", twice: true, warnings: 1}, {goes: "2", warnings: 1}, {goes: "1", warnings: 1},
	} {
		if step.comes != "" {
			if err := f.connect(run(step.comes)); err != nil {
				t.Fatal(err)
			}
		} else {
			f.disconnect(run(step.goes))
		}
		if a := told(); (a.Message != "") != step.twice || strings.Count(said.String(), "--node") != step.warnings {
			t.Errorf("%+v: agents are told of as %+v, the log says %s", step, a, said.String())
		}
	}
	if a := told(); a.Phase != "silent" {
		t.Errorf("all have gone: %+v", a)
	}
}
