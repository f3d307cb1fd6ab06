package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// oneStack makes a window of one stack, root first, of a service that used so much.
func oneStack(service string, used time.Duration, start time.Time, labels profile.Labels, stack ...profile.Frame) *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: "builtin", Target: profile.Labels{"node": "n"}, Start: start, Duration: 10 * time.Second,
		Types: []profile.ValueType{profile.CPUTime(1e7)}, Design: profile.DesignRandomised})
	h := b.Head()
	for name, value := range labels {
		h.Target[name] = value
	}
	if service == "" {
		h.Watched = 20 * time.Second
		return b.Window()
	}
	h.Target["service"] = service
	h.Exact.CPU = used
	n := int64(used / 1e7)
	h.AddLoss(profile.Loss{Reason: profile.LossTruncated, Detail: "unreadable stack", N: n / 5})
	var ids []profile.LocationID
	for _, f := range slices.Backward(stack) {
		ids = append(ids, b.Named(f))
	}
	b.Add(profile.Row{Stack: b.Stack(ids, profile.EndComplete), N: n, Values: []int64{int64(used)}, Squares: []float64{float64(used) * 1e7}})
	return b.Window()
}

func (r *running) push(t *testing.T, windows ...*profile.Window) {
	t.Helper()
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	for i, w := range windows {
		if err := b.Add(wire.Seal(w, profile.Run{byte(i + 1)})); err != nil {
			t.Fatal(err)
		}
	}
	var p *atysv1.PushRequest = b.Request()
	if response, err := r.intake.Push(context.Background(), p); err != nil || len(response.GetUnknown()) > 0 {
		t.Fatalf("%d unknown, %v", len(response.GetUnknown()), err)
	}
	r.store.Settle()
}

var (
	handler = profile.Frame{Function: "shop.Serve", File: "/src/shop/serve.go", Kind: profile.KindNative, Mapping: "/srv/shop"}
	encode  = profile.Frame{Function: "syscall.Syscall", File: "/usr/local/go/src/syscall/asm.s", Kind: profile.KindNative, Mapping: "/srv/shop"}
	write   = profile.Frame{Function: "ksys_write", Kind: profile.KindKernel}
)

// town is a server of a machine with a service, a small daemon, and short commands.
func town(t *testing.T) *running {
	r, at := start(t), noon.Add(-time.Minute)
	lasting := profile.Labels{"executable": "x"}
	windows := []*profile.Window{oneStack("", 0, at, nil), oneStack("shop", 60*time.Second, at, lasting, handler, encode, write), oneStack("till", 30*time.Second, at, lasting, handler),
		oneStack("daemon", 200*time.Millisecond, at, lasting, handler), oneStack("make", 8*time.Second, at, nil, handler)}
	for _, command := range []string{"mv", "rm", "sleep", "cc1"} {
		windows = append(windows, oneStack(command, time.Second, at, nil, handler))
	}
	r.push(t, windows...)
	return r
}

// shown lists the services of an overview that are to be seen.
func shown(page string) (names []string) {
	for _, m := range regexp.MustCompile(`<tr class="service"([^>]*)><td><a [^>]*title="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(m[1], "hidden") {
			names = append(names, html.UnescapeString(m[2]))
		}
	}
	return names
}

func TestServiceList(t *testing.T) {
	r := town(t)
	for path, want := range map[string][]string{
		"/":                       {"make", "shop", "till"},
		"/?minor=1":               {"cc1", "daemon", "make", "mv", "rm", "shop", "sleep", "till"},
		"/?filter=M":              {"daemon", "make", "mv", "rm"},
		"/?filter=aE":             {"daemon"},
		"/?service=sleep":         {"make", "shop", "sleep", "till"},
		"/?filter=nothing+of+it":  nil,
		"/?service=shop&last=10s": nil,
	} {
		status, page := r.get(t, path)
		if got := slices.Sorted(slices.Values(shown(page))); status != http.StatusOK || !slices.Equal(got, want) {
			t.Errorf("%s: %d, %q, want %q", path, status, got, want)
		}
	}
	if _, page := r.get(t, "/"); !strings.Contains(page, "5 short-lived or small") {
		t.Error("nothing stands for what is folded")
	}
	if _, page := r.get(t, "/?filter=nothing+of+it"); !strings.Contains(page, `<p class="none">`) {
		t.Error("nobody says that the filter leaves nothing")
	}
}

// TestNoSuchService says so, and what there is.
func TestNoSuchService(t *testing.T) {
	r := town(t)
	status, page := r.get(t, "/?service=nope")
	if status != http.StatusOK || !strings.Contains(page, "There is no service <b>nope</b>") || !strings.Contains(page, `service=shop">shop</a>`) || strings.Contains(page, "<iframe") {
		t.Errorf("%d, %s", status, page[strings.Index(page, "<main>"):])
	}
	if status, page := r.get(t, "/flame?service=nope"); status != http.StatusNotFound || !strings.Contains(page, `no service "nope"`) || !strings.Contains(page, "shop, till") {
		t.Errorf("%d, %s", status, page)
	}
	if status, page := r.get(t, "/flame?service=shop&last=10s"); status != http.StatusNotFound || strings.Contains(page, "no service") {
		t.Errorf("of a time without any windows: %d, %s", status, page)
	}
}

// TestTimesOfPages asks for absolute times, and for what is none.
func TestTimesOfPages(t *testing.T) {
	r, at := start(t), noon.Add(-2*time.Hour)
	r.push(t, oneStack("early", time.Second, at, nil, handler), oneStack("late", time.Second, noon.Add(-time.Minute), nil, handler))
	hour := func(h int) string { return at.Add(time.Duration(h-10) * time.Hour).Format(time.RFC3339) }
	for query, want := range map[string][]string{
		"last=15m":                             {"late"},
		"from=" + hour(10) + "&to=" + hour(11): {"early"},
		"from=" + hour(10):                     {"early", "late"},
		"from=-3h&to=-1h":                      {"early"},
		"last=1h&to=" + hour(11):               {"early"},
		fmt.Sprintf("from=%d&to=now", noon.Add(-time.Hour).Unix()): {"late"},
	} {
		status, page := r.get(t, "/?"+query)
		got := slices.Sorted(slices.Values(shown(page)))
		if status != http.StatusOK || !slices.Equal(got, want) {
			t.Errorf("%s: %d, %q, want %q", query, status, got, want)
		}
		if frame := regexp.MustCompile(`<iframe src="([^"]*)"`).FindStringSubmatch(page); frame == nil {
			t.Errorf("%s: there is no graph", query)
		} else if status, _ := r.get(t, html.UnescapeString(frame[1])); status != http.StatusOK {
			t.Errorf("%s: the graph: %d", query, status)
		}
	}
	for query, want := range map[string]string{
		"from=soon":                            `from: "soon" is not a time`,
		"to=2026-13-01":                        `to: "2026-13-01" is not a time`,
		"from=" + hour(11) + "&to=" + hour(10): "from must be before to",
		"from=" + hour(10) + "&to=" + hour(10): "from must be before to",
		"from=-1h&last=2h":                     "last and from exclude each other",
		"from=1970-01-01":                      "longer than ten years",
		"last=foo":                             `last: "foo" is not a duration: use 15m or 24h`,
		"own=maybe":                            `own: "maybe" is neither 0 nor 1`,
		"sort=size":                            `sort: "size" is neither cpu nor name`,
		"refresh=1us":                          "refresh",
		"filter=" + strings.Repeat("x", 300):   "filter",
	} {
		for _, page := range []string{"/?", "/flame?"} {
			if status, said := r.get(t, page+query); status != http.StatusBadRequest || !strings.Contains(said, want) {
				t.Errorf("%s%s: %d, %q, want %q", page, query, status, said, want)
			}
		}
	}
}

// sourceOf is a script or style as a content security policy names it.
func sourceOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// TestPagePolicy has the overview run its own script and nothing else.
func TestPagePolicy(t *testing.T) {
	r := town(t)
	answer, err := r.Client().Get(r.URL + "/?filter=" + url.QueryEscape(`"><script>alert(1)</script>`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	policy := answer.Header.Get("Content-Security-Policy")
	for _, forbidden := range []string{"unsafe", "*", "http"} {
		if strings.Contains(policy, forbidden) {
			t.Errorf("the policy has %q: %s", forbidden, policy)
		}
	}
	_, page := r.get(t, "/?filter="+url.QueryEscape(`"><script>alert(1)</script>`))
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	if len(scripts) != 1 || !strings.Contains(policy, "script-src '"+sourceOf(scripts[0][1])+"'") {
		t.Errorf("%d scripts, of which the policy %q is to name the one", len(scripts), policy)
	}
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	if len(styles) != 1 || !strings.Contains(policy, "style-src '"+sourceOf(styles[0][1])+"'") || strings.Contains(page, " style=") {
		t.Errorf("%d styles, of which the policy %q is to name the one", len(styles), policy)
	}
}
