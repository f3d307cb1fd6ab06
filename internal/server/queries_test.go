package server

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

func TestTopOwn(t *testing.T) {
	ctx := context.Background()
	kept := mem.New(1)
	s, err := New(Options{Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if err := kept.Put(ctx, "default", store.Raw, storetest.Batch(profile.Run{7}, storetest.Window(1, "shop", "one", begin))); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	about := &atysv1.Selection{Kind: "cpu", FromUnixNano: begin.UnixNano(), ToUnixNano: begin.Add(time.Minute).UnixNano()}
	for _, test := range []struct {
		name string
		ask  *atysv1.TopRequest
		all  bool // is charged to functions of this window, which has no empty stacks
		want string
	}{
		{"own", &atysv1.TopRequest{Fold: "own"}, true, ""},
		{"with rules", &atysv1.TopRequest{Fold: "own", Rules: "library function ."}, true, "[library]"},
		{"another fold", &atysv1.TopRequest{Fold: "mine"}, false, `fold "mine": want own or hide-runtime`},
		{"wrong rules", &atysv1.TopRequest{Rules: "\nlibary file x"}, false, `line 2: class "libary"`},
		{"long rules", &atysv1.TopRequest{Rules: strings.Repeat("#", maxRules+1)}, false, "at most 16384 are accepted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.ask.Selection = about
			r, err := s.Top(ctx, test.ask)
			if !test.all {
				if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n, found := int64(0), false
			for _, f := range r.GetFunctions() {
				n += f.GetSelf().GetN()
				found = found || f.GetFunction() == test.want
				if test.ask.GetRules() == "" && f.GetClass() != "application" && f.GetClass() != "unknown" && !strings.HasPrefix(f.GetFunction(), "[") {
					t.Errorf("%s is of class %s", f.GetFunction(), f.GetClass())
				}
			}
			if n != r.GetN() || test.want != "" && !found {
				t.Errorf("%d of %d samples are charged: %v", n, r.GetN(), r.GetFunctions())
			}
		})
	}
}

// TestKinds lists the value types of a selection, which need not name a kind.
func TestKinds(t *testing.T) {
	kept := mem.New(1)
	s, err := New(Options{Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	cpu, waits := storetest.Window(1, "shop", "one", begin), storetest.Window(2, "shop", "two", begin)
	cpu.Types = []profile.ValueType{profile.CPUTime(1000), {Kind: "page-faults", Unit: "count", Period: 1}}
	waits.Types = []profile.ValueType{{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall}, {Kind: "live", Unit: "bytes", Temporality: profile.Level}}
	for _, w := range []*profile.Window{cpu, waits} {
		if err := kept.Put(t.Context(), "default", store.Raw, storetest.Batch(profile.Run{7}, w)); err != nil {
			t.Fatal(err)
		}
	}
	kept.Settle()
	for selector, want := range map[string]string{
		"":                                "cpu/nanoseconds live/bytes off-cpu/nanoseconds page-faults/count",
		`{service="shop",instance="one"}`: "cpu/nanoseconds page-faults/count",
		`{service="cart"}`:                "",
	} {
		about := &atysv1.Selection{Select: selector, FromUnixNano: begin.UnixNano(), ToUnixNano: begin.Add(time.Minute).UnixNano()}
		r, err := s.Kinds(t.Context(), &atysv1.KindsRequest{Selection: about})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range r.GetTypes() {
			got = append(got, v.GetKind()+"/"+v.GetUnit())
			if v.GetKind() == "off-cpu" && v.GetBase() != "wall" || v.GetKind() == "live" && v.GetTemporality() != uint32(profile.Level) {
				t.Errorf("%v", v)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	if _, err := s.Kinds(t.Context(), &atysv1.KindsRequest{Selection: &atysv1.Selection{}}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a selection of no time: %v", err)
	}
}

// TestContexts splits a selection by a part of contexts, and asks for some contexts only.
func TestContexts(t *testing.T) {
	kept := mem.New(1)
	s, err := New(Options{Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	b := profile.NewBuilder(profile.Head{Start: begin, Duration: time.Second, Target: profile.Labels{"service": "shop"}, Types: []profile.ValueType{{Kind: "off-cpu", Unit: "nanoseconds"}}})
	stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "f"})}, profile.EndComplete)
	for i, c := range []profile.Context{{Reason: "blocked"}, {Reason: "run queue"}, {Reason: "blocked", Endpoint: "/"}, {}} {
		b.Add(profile.Row{Stack: stack, Context: b.Context(c), N: 1, Values: []int64{1 << i}, Squares: []float64{1}})
	}
	if err := kept.Put(t.Context(), "default", store.Raw, storetest.Batch(profile.Run{7}, b.Window())); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	about := &atysv1.Selection{Kind: "off-cpu", FromUnixNano: begin.UnixNano(), ToUnixNano: begin.Add(time.Minute).UnixNano()}
	split, err := s.Split(t.Context(), &atysv1.SplitRequest{Selection: about, Context: store.ContextReason})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, p := range split.GetParts() {
		got[p.GetBy()] = p.GetValue()
	}
	if want := map[string]int64{"": 8, "blocked": 5, "run queue": 2}; !maps.Equal(got, want) {
		t.Errorf("by reason %v, want %v", got, want)
	}
	for selector, want := range map[string]int64{`{reason="blocked"}`: 5, `{reason="blocked",endpoint=""}`: 1, `{reason!=""}`: 7, "": 15} {
		about.Context = selector
		top, err := s.Top(t.Context(), &atysv1.TopRequest{Selection: about})
		if err != nil || len(top.GetFunctions()) != 1 || top.GetFunctions()[0].GetSelf().GetValue() != want {
			t.Errorf("%s: %v, %v, want %d", selector, top.GetFunctions(), err, want)
		}
	}
	about.Context = `{color="red"}`
	if _, err := s.Top(t.Context(), &atysv1.TopRequest{Selection: about}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a part that contexts do not have: %v", err)
	}
	about.Context = ""
	for _, r := range []*atysv1.SplitRequest{{Selection: about, Context: "color"}, {Selection: about, Context: store.ContextReason, By: "node"}} {
		if _, err := s.Split(t.Context(), r); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// TestTooManySteps is told how long steps have to be, and asks for those.
func TestTooManySteps(t *testing.T) {
	s, err := New(Options{Store: mem.New(1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, span := range []time.Duration{40 * time.Minute, 3 * 24 * time.Hour, 400 * 24 * time.Hour} {
		about := &atysv1.Selection{Kind: "cpu", FromUnixNano: begin.UnixNano(), ToUnixNano: begin.Add(span).UnixNano()}
		_, err := s.Split(t.Context(), &atysv1.SplitRequest{Selection: about, StepNs: int64(time.Second)})
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Fatalf("steps of a second of %v: %v", span, err)
		}
		_, rest, _ := strings.Cut(err.Error(), "use steps of ")
		text, _, found := strings.Cut(rest, " (--step)")
		step, wrong := time.ParseDuration(text)
		if !found || wrong != nil {
			t.Fatalf("%v does not say which steps are few enough", err)
		}
		if _, err := s.Split(t.Context(), &atysv1.SplitRequest{Selection: about, StepNs: int64(step)}); err != nil {
			t.Errorf("steps of %v, as is said: %v", step, err)
		}
	}
}

// TestClosing has who asks while a server ends be told to ask again, and the log
// of nothing that is wrong.
func TestClosing(t *testing.T) {
	var said bytes.Buffer
	admission, as := admitted(t)
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Admission: admission, Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	client := as(h, "default/operator")
	_, err = atysv1connect.NewQueryClient(client, h.URL).Top(t.Context(), &atysv1.TopRequest{Selection: &atysv1.Selection{Kind: "cpu", ToUnixNano: 1}})
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a question: %v", err)
	}
	p, _ := request(t, false, "shop", time.Now())
	if _, err := atysv1connect.NewIntakeClient(client, h.URL).Push(t.Context(), p); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a push: %v", err)
	}
	for _, page := range []string{"/", "/flame"} {
		if answer, err := client.Get(h.URL + page); err != nil || answer.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %+v, %v", page, answer, err)
		}
	}
	if strings.Contains(said.String(), "ERROR") {
		t.Errorf("the log says %s", said.String())
	}
}
