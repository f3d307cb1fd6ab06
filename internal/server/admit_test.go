package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// stands answers for a relay that is not there.
func stands(ctx context.Context, c *http.Client, url string) error {
	_, err := atysv1connect.NewFleetClient(c, url).Stand(ctx, &atysv1.StandRequest{Offer: []byte("of nobody")})
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	return err
}

// TestAdmission asks for everything as everybody.
func TestAdmission(t *testing.T) {
	now := time.Now().UnixNano()
	requests := map[string]func(c *http.Client, url string) error{
		"push": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewIntakeClient(c, url).Push(t.Context(), &atysv1.PushRequest{})
			return err
		},
		"report": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewFleetClient(c, url).Report(t.Context(), &atysv1.ReportRequest{Node: "n"})
			return err
		},
		"attend": func(c *http.Client, url string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			return first(atysv1connect.NewFleetClient(c, url).Attend(ctx, &atysv1.AttendRequest{Node: "n"}))
		},
		"offer": func(c *http.Client, url string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			return first(atysv1connect.NewFleetClient(c, url).Offer(ctx, &atysv1.OfferRequest{Name: "one", Address: "http://one:4310", Labels: map[string]string{"zone": "a"}}))
		},
		"stand": func(c *http.Client, url string) error { return stands(t.Context(), c, url) },
		"apply": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewControlClient(c, url).Apply(t.Context(), &atysv1.ApplyRequest{})
			return err
		},
		"delete": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewControlClient(c, url).Delete(t.Context(), &atysv1.DeleteRequest{Kind: "profiles", Name: "none"})
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil
			}
			return err
		},
		"get": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewControlClient(c, url).Get(t.Context(), &atysv1.GetRequest{Kind: "agents"})
			return err
		},
		"status": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewControlClient(c, url).Status(t.Context(), &atysv1.StatusRequest{})
			return err
		},
		"merge": func(c *http.Client, url string) error {
			_, err := atysv1connect.NewQueryClient(c, url).Merge(t.Context(), &atysv1.MergeRequest{Selection: &atysv1.Selection{Kind: "cpu", FromUnixNano: now - 1, ToUnixNano: now}})
			return err
		},
		"page":     func(c *http.Client, url string) error { return fetched(c, url+"/") },
		"flame":    func(c *http.Client, url string) error { return fetched(c, url+"/flame") },
		"stat":     func(c *http.Client, url string) error { return fetched(c, url+StatPath) },
		"backup":   func(c *http.Client, url string) error { return fetched(c, url+BackupPath) },
		"metrics":  func(c *http.Client, url string) error { return fetched(c, url+"/metrics") },
		"agents":   func(c *http.Client, url string) error { return fetched(c, url+"/sd/agents") },
		"nonsense": func(c *http.Client, url string) error { return fetched(c, url+"/../../etc/passwd") },
		"inside":   func(c *http.Client, url string) error { return fetched(c, url+auth.InsidePath+"heap") },
		"sideways": func(c *http.Client, url string) error { return fetched(c, url+"/flame/..//."+auth.InsidePath) },
		"healthz":  func(c *http.Client, url string) error { return fetched(c, url+"/healthz") },
	}
	const agents, readers = "push report attend ", "get status merge page flame metrics agents nonsense "
	for _, who := range []struct {
		token string // "": none
		local bool   // it need not say
		may   string
	}{
		{"default/agent", true, agents},
		{"default/relay", true, agents + "offer stand "},
		{"default/reader", true, readers},
		{"default/operator", true, agents + readers + "offer stand apply delete stat backup inside sideways "},
		{"other/operator", true, strings.ReplaceAll(agents+readers+"offer stand apply delete ", "metrics ", "")},
		{"", true, readers},
		{"", false, ""},
		{"guessed", true, ""},
		{"guessed", false, ""},
	} {
		t.Run(who.token, func(t *testing.T) {
			admission, as := admitted(t)
			admission.Local = who.local
			s, err := New(Options{Store: mem.New(1), Admission: admission, Registry: prometheus.NewRegistry(),
				Inside: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			h := httptest.NewServer(s.Handler())
			t.Cleanup(h.Close)
			for name, request := range requests {
				err := request(as(h, who.token), h.URL)
				may := name == "healthz" || strings.Contains(who.may, name+" ")
				refused := connect.CodeOf(err) == connect.CodeUnauthenticated || connect.CodeOf(err) == connect.CodePermissionDenied
				switch {
				case may && err != nil:
					t.Errorf("%s: %v", name, err)
				case !may && !refused:
					t.Errorf("%s: let through, %v", name, err)
				}
			}
		})
	}
}

// first waits for the first of a stream.
func first[M any](stream *connect.ServerStreamForClient[M], err error) error {
	if err != nil || stream.Receive() {
		return err
	}
	return stream.Err()
}

// fetched gets a page; what is not there was let through.
func fetched(c *http.Client, url string) error {
	answer, err := c.Get(url)
	if err != nil {
		return err
	}
	answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return connect.NewError(connect.CodeUnauthenticated, nil)
	case http.StatusForbidden:
		return connect.NewError(connect.CodePermissionDenied, nil)
	}
	return nil
}

// TestTenants has two tenants see nothing of each other.
func TestTenants(t *testing.T) {
	admission, as := admitted(t)
	kept := mem.New(1)
	dir := t.TempDir()
	s, err := New(Options{Store: kept, Profiles: dir, Admission: admission, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)

	pushed, _ := request(t, false, "shop", noon.Add(-time.Minute))
	if _, err := atysv1connect.NewIntakeClient(as(h, "other/agent"), h.URL).Push(t.Context(), pushed); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	theirs, ours := as(h, "other/operator"), as(h, "default/operator")
	if _, err := atysv1connect.NewControlClient(theirs, h.URL).Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{`{"kind":"Profile","name":"theirs"}`}}); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[*http.Client]int{theirs: 1, ours: 0} {
		profiles, err := atysv1connect.NewControlClient(who, h.URL).Get(t.Context(), &atysv1.GetRequest{Kind: "profiles"})
		if err != nil {
			t.Fatal(err)
		}
		windows, err := atysv1connect.NewQueryClient(who, h.URL).Windows(t.Context(), &atysv1.WindowsRequest{Selection: &atysv1.Selection{Kind: "cpu",
			FromUnixNano: noon.Add(-time.Hour).UnixNano(), ToUnixNano: noon.UnixNano()}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(profiles.GetObjects()) != want || len(windows.GetWindows()) != want {
			t.Errorf("%d profiles and %d windows, want %d each", len(profiles.GetObjects()), len(windows.GetWindows()), want)
		}
	}
	again, err := New(Options{Store: kept, Profiles: dir, Admission: admission})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	ctx := auth.With(t.Context(), auth.Identity{Tenant: "other", Role: auth.Operator})
	if kept, err := again.Get(ctx, &atysv1.GetRequest{Kind: "profiles"}); err != nil || len(kept.GetObjects()) != 1 {
		t.Errorf("after a restart: %d profiles, %v", len(kept.GetObjects()), err)
	}
}
