package golden

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// answers are what a server says of a store, a line each. What is estimated is not
// among it, nor what later versions say beside.
type answers struct {
	*testing.T
	query   atysv1connect.QueryClient
	control atysv1connect.ControlClient
	at      *Served
	strings.Builder
}

// served serves a store, and asks all that can be asked.
func served(t *testing.T, s store.Store, profiles string) string {
	t.Helper()
	at, err := Serve(s, profiles, Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	client := at.As(auth.Operator)
	a := &answers{T: t, at: at, query: atysv1connect.NewQueryClient(client, at.URL, Asking()), control: atysv1connect.NewControlClient(client, at.URL, Asking())}
	a.objects()
	for name, selection := range selections() {
		a.top(name, selection)
	}
	a.splits()
	a.lists()
	a.merged()
	a.pages()
	a.functions(s)
	lines := slices.Sorted(strings.Lines(a.String()))
	return strings.Join(lines, "")
}

// selections are of times of which all levels are asked.
func selections() map[string]*atysv1.Selection {
	of := func(kind, selector string, from, to time.Time) *atysv1.Selection {
		return &atysv1.Selection{Kind: kind, Select: selector, FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano()}
	}
	day := func(n int) time.Time { return Epoch().AddDate(0, 0, n) }
	return map[string]*atysv1.Selection{
		"all":                 of("cpu", "", day(0), Now()),
		"first day":           of("cpu", "", day(0), day(1)),
		"second day":          of("cpu", "", day(1), day(2)),
		"an hour":             of("cpu", "", day(2).Add(9*time.Hour), day(2).Add(10*time.Hour)),
		"shop":                of("cpu", `{service="shop"}`, day(0), day(3)),
		"an instance of cart": of("cpu", `{service="cart",node="n1"}`, day(1), day(3)),
		"queue":               of("cpu", `{service="queue"}`, day(0), day(3)),
		"faults":              of("page-faults", "", day(0), day(3)),
		"bytes":               of("bytes", "", day(1), day(3)),
	}
}

func (a *answers) line(format string, args ...any) { fmt.Fprintf(a, format+"\n", args...) }

func (a *answers) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *answers) objects() {
	got, err := a.control.Get(a.Context(), &atysv1.GetRequest{Kind: "profiles"})
	a.must(err)
	for _, o := range got.GetObjects() {
		a.line("profile %s", o.GetName())
	}
}

func (a *answers) top(name string, s *atysv1.Selection) {
	got, err := a.query.Top(a.Context(), &atysv1.TopRequest{Selection: s})
	a.must(err)
	a.line("top of %s: n %d, value %d %s, exact %v, %v, %v", name, got.GetN(), got.GetValue(), got.GetUnit(),
		time.Duration(got.GetExact().GetCpuNs()), time.Duration(got.GetExact().GetUserNs()), time.Duration(got.GetExact().GetSystemNs()))
	for _, f := range got.GetFunctions() {
		a.line("top of %s: %s %s %s %s: self %d %d, total %d %d", name, f.GetFunction(), f.GetFile(), f.GetKind(), f.GetMapping(),
			f.GetSelf().GetN(), f.GetSelf().GetValue(), f.GetTotal().GetN(), f.GetTotal().GetValue())
	}
	a.coverage("top of "+name, got.GetCoverage())
}

func (a *answers) coverage(of string, c *atysv1.Coverage) {
	a.line("coverage of %s: %d windows, %d damaged, %d doubtful, n %d, cost %d %d %d, cpu %v, overlapping %v", of, c.GetWindows(), c.GetDamaged(), c.GetDoubtfulWindows(), c.GetN(),
		c.GetCost().GetUserNs(), c.GetCost().GetBpfNs(), c.GetCost().GetInterruptNs(), time.Duration(c.GetCpuNs()), c.GetOverlappingTasks())
	for _, l := range c.GetLosses() {
		a.line("coverage of %s: loss %q %q: %d %d", of, l.GetReason(), l.GetDetail(), l.GetN(), l.GetValue())
	}
	for _, n := range c.GetNodes() {
		a.line("coverage of %s: node %s of %s watched %v, %d gaps, stopped %d times", of, n.GetNode(), n.GetTask(), time.Duration(n.GetWatchedNs()), len(n.GetMissing()), len(n.GetStopped()))
	}
	for _, task := range c.GetTasks() {
		a.line("coverage of %s: task %s recorded %d of %d", of, task.GetTask(), task.GetInstances().GetRecorded(), task.GetInstances().GetEligible())
	}
	for _, span := range c.GetDropped() {
		a.line("coverage of %s: dropped from %d to %d", of, span.GetFromUnixNano(), span.GetToUnixNano())
	}
}

func (a *answers) splits() {
	for _, by := range []string{"service", "node", "thread"} {
		s := selections()["all"]
		if by != "service" { // what is added up of services has no threads or nodes
			s = selections()["second day"]
		}
		got, err := a.query.Split(a.Context(), &atysv1.SplitRequest{Selection: s, By: by})
		a.must(err)
		for _, p := range got.GetParts() {
			a.line("by %s: %q: %d windows, n %d, value %d, cpu %v", by, p.GetBy(), p.GetWindows(), p.GetN(), p.GetValue(), time.Duration(p.GetCpuNs()))
		}
		a.coverage("by "+by, got.GetCoverage())
	}
	got, err := a.query.Split(a.Context(), &atysv1.SplitRequest{Selection: selections()["all"], StepNs: int64(24 * time.Hour)})
	a.must(err)
	for _, p := range got.GetParts() {
		a.line("by day: %v: %d windows, n %d, value %d, cpu %v", time.Unix(0, p.GetStartUnixNano()).UTC(), p.GetWindows(), p.GetN(), p.GetValue(), time.Duration(p.GetCpuNs()))
	}
}

func (a *answers) lists() {
	labels, err := a.query.Labels(a.Context(), &atysv1.LabelsRequest{Selection: selections()["all"]})
	a.must(err)
	for name, values := range labels.GetLabels() {
		a.line("label %s: %q", name, values.GetValues())
	}
	windows, err := a.query.Windows(a.Context(), &atysv1.WindowsRequest{Selection: selections()["second day"], Limit: 1000})
	a.must(err)
	a.line("%d windows, more: %v", len(windows.GetWindows()), windows.GetMore())
	for _, w := range windows.GetWindows() {
		a.line("window %s %s %x %d %v: n %d, value %d, %d stacks, %q, %d losses, period %v, rate %v %q %q, instances %d of %d", profile.Labels(w.GetLabels()), w.GetTask(), w.GetRun(), w.GetStartUnixNano(), time.Duration(w.GetDurationNs()),
			w.GetN(), w.GetValue(), w.GetStacks(), w.GetDesign(), len(w.GetLosses()), time.Duration(w.GetPeriodNs()), w.GetRate().GetHertz(), w.GetRate().GetReason(), w.GetRate().GetBy(), w.GetInstances().GetRecorded(), w.GetInstances().GetEligible())
	}
	rates, err := a.query.Rates(a.Context(), &atysv1.RatesRequest{Selection: selections()["second day"], All: true})
	a.must(err)
	for _, d := range rates.GetDecided() {
		a.line("rate of %s %s at %d: %v %q %q %q, %d windows, n %d", d.GetTask(), d.GetService(), d.GetStartUnixNano(), d.GetRate().GetHertz(), d.GetRate().GetPolicy(), d.GetRate().GetReason(), d.GetRate().GetBy(), d.GetWindows(), d.GetN())
	}
}

// merged asks for a profile, as "atys record --server" and "atys query merge" do.
func (a *answers) merged() {
	got, err := a.query.Merge(a.Context(), &atysv1.MergeRequest{Selection: selections()["an hour"]})
	a.must(err)
	w, _, err := wire.Open(got.GetWindow())
	a.must(err)
	sum := summary{}
	sum.add("merged", w)
	a.WriteString(sum.String())
}

// pages are for browsers: they name the services, what they did, and what was lost.
func (a *answers) pages() {
	for page, facts := range map[string][]string{
		"/?last=73h":                    {"shop", "cart", "mail", "search", "legacy", "windows never arrived", "ring full"},
		"/flame?last=73h":               {"all services", "ring full", "windows never arrived"},
		"/flame?last=73h&service=queue": {"<title>queue"},
		"/metrics":                      {"atys_server_"},
		"/healthz":                      {"ok"},
	} {
		text := a.get(page)
		for _, fact := range facts {
			if !strings.Contains(text, fact) {
				a.Errorf("%s does not say %q", page, fact)
			}
		}
	}
}

func (a *answers) get(page string) string {
	a.Helper()
	q, err := http.NewRequestWithContext(a.Context(), http.MethodGet, a.at.URL+page, nil)
	a.must(err)
	response, err := a.at.As(auth.Operator).Do(q)
	a.must(err)
	body, err := io.ReadAll(response.Body)
	a.must(err)
	a.must(response.Body.Close())
	if response.StatusCode != http.StatusOK {
		a.Fatalf("%s: %s: %s", page, response.Status, body)
	}
	return string(body) + drawn(a.T, body)
}

// drawn is what a page has packed, if it has.
func drawn(t *testing.T, page []byte) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(string(regexp.MustCompile(`H4sI[A-Za-z0-9+/=]{100,}`).Find(page)))
	if err != nil || len(data) == 0 {
		return ""
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// functions are what Prometheus is told of windows.
func (a *answers) functions(s store.Store) {
	f := promexport.NewFunctions(Now)
	err := s.Scan(a.Context(), auth.DefaultTenant, store.Query{To: Now()}, func(w *profile.Window, _ profile.Run) error {
		if w.TypeIndex("cpu") == 0 && w.Target[store.ServiceLabel] != "" {
			f.Add(w, 3)
		}
		return nil
	})
	a.must(err)
	registry := prometheus.NewPedanticRegistry()
	a.must(registry.Register(f))
	families, err := registry.Gather()
	a.must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			a.line("exported %s %v: %.6g", family.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
}
