package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// running is a server with a store in memory, behind a real socket.
type running struct {
	*httptest.Server
	store  *mem.Store
	intake atysv1connect.IntakeClient
}

func start(t *testing.T) *running {
	t.Helper()
	r := &running{store: mem.New(1)}
	admission, as := admitted(t)
	s, err := New(Options{Store: r.store, Admission: admission, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close) // before the connections
	r.Server = httptest.NewServer(s.Handler())
	t.Cleanup(r.Close)
	r.intake = atysv1connect.NewIntakeClient(as(r.Server, "default/operator"), r.URL)
	return r
}

// admitted is an admission that knows some tokens, each called as its tenant
// and role, and makes clients that ask with one.
func admitted(t *testing.T) (Admission, func(h *httptest.Server, token string) *http.Client) {
	t.Helper()
	tokens, err := auth.OpenTokens("", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"default", "other"} {
		for _, role := range []auth.Role{auth.Agent, auth.Relay, auth.Reader, auth.Operator} {
			tokens.Add(tenant+"/"+string(role), auth.Identity{Tenant: tenant, Role: role})
		}
	}
	return Admission{Tokens: tokens, Local: true}, func(h *httptest.Server, token string) *http.Client {
		return &http.Client{Transport: &auth.Bearer{Token: func() (string, error) { return token, nil }, Scheme: "http", Host: h.Listener.Addr().String(), Next: h.Client().Transport}}
	}
}

// request is windows of a service as an agent sends them.
func request(t testing.TB, known bool, service string, starts ...time.Time) (*atysv1.PushRequest, []*profile.Window) {
	t.Helper()
	b := wire.NewBatch(func(profile.Hash) bool { return known })
	var windows []*profile.Window
	for i, start := range starts {
		w := storetest.Window(uint64(i)+1, service, "one", start)
		w.Types[0].Period = 1
		if err := b.Add(wire.Seal(w, profile.Run{1})); err != nil {
			t.Fatal(err)
		}
		windows = append(windows, w)
	}
	return b.Request(), windows
}

func (r *running) get(t *testing.T, path string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, r.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	answer, err := r.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(page)
}

// TestPush sends what is not known, is told so, explains it, and finds it on the pages.
func TestPush(t *testing.T) {
	r := start(t)
	silent, _ := request(t, true, "shop", noon.Add(-time.Minute))
	response, err := r.intake.Push(context.Background(), silent)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.GetUnknown()) != len(silent.GetStacks()) {
		t.Errorf("%d bytes of unknown stacks, want all %d", len(response.GetUnknown()), len(silent.GetStacks()))
	}
	whole, windows := request(t, false, "shop", noon.Add(-time.Minute), noon.Add(-50*time.Second))
	if response, err = r.intake.Push(context.Background(), whole); err != nil || len(response.GetUnknown()) > 0 {
		t.Fatalf("%d unknown, %v", len(response.GetUnknown()), err)
	}
	if got := time.Unix(0, response.GetReceivedUnixNano()); !got.Equal(noon) {
		t.Errorf("received at %v, it is %v", got, noon)
	}
	r.store.Settle()
	var samples int64
	for _, w := range windows {
		samples += w.N()
	}
	status, page := r.get(t, "/")
	if status != http.StatusOK || !strings.Contains(page, ">shop</a>") || !strings.Contains(page, ">"+render.Count(samples)+"</td>") {
		t.Errorf("the overview, %d, does not show shop with %d samples:\n%s", status, samples, page)
	}
	if status, page = r.get(t, "/flame?service=shop&last=5m"); status != http.StatusOK || !strings.Contains(page, "shop, last 5m") {
		t.Errorf("the flame graph: %d, %.300s", status, page)
	}
	if status, page = r.get(t, "/?select="+url.QueryEscape(`{instance="two"}`)); status != http.StatusOK || strings.Contains(page, ">shop</a>") {
		t.Errorf("instances that are not there: %d, %s", status, page)
	}
	if status, _ = r.get(t, "/flame?service=shop&last=30s"); status != http.StatusNotFound {
		t.Errorf("of a time without windows: %d", status)
	}
}

// TestWhatIsKnownIsNotRead takes windows whose stacks are known by now, however
// they are explained, and refuses the same where they are not.
func TestWhatIsKnownIsNotRead(t *testing.T) {
	r := start(t)
	push := func(dictionary []byte) error {
		p, _ := request(t, false, "shop", noon)
		p.IfUnknown = true
		if dictionary != nil {
			p.Dictionary = dictionary
		}
		response, err := r.intake.Push(context.Background(), p)
		if err == nil && len(response.GetUnknown()) > 0 {
			t.Errorf("%d stacks were explained, and are unknown", len(response.GetUnknown())/16)
		}
		return err
	}
	nonsense := []byte("nonsense")
	if err := push(nonsense); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("explained by nonsense: %v, want an invalid argument", err)
	}
	if err := push(nil); err != nil {
		t.Errorf("explained: %v", err)
	}
	if err := push(nonsense); err != nil {
		t.Errorf("known by now: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	r := start(t)
	sound := func() *atysv1.PushRequest { p, _ := request(t, false, "shop", noon); return p }
	teach := func(p *atysv1.PushRequest, spoil func(*atysv1.Dictionary)) {
		d := &atysv1.Dictionary{}
		if err := proto.Unmarshal(p.GetDictionary(), d); err != nil {
			t.Fatal(err)
		}
		spoil(d)
		var err error
		if p.Dictionary, err = proto.Marshal(d); err != nil {
			t.Fatal(err)
		}
	}
	for name, spoil := range map[string]func(*atysv1.PushRequest){
		"half a hash":       func(p *atysv1.PushRequest) { p.Stacks = p.Stacks[1:] },
		"no such series":    func(p *atysv1.PushRequest) { p.Windows[0].Series = 9 },
		"no such stack":     func(p *atysv1.PushRequest) { p.Windows[0].Rows.Stack[0] = 1 << 30 },
		"columns too short": func(p *atysv1.PushRequest) { p.Windows[0].Rows.N = p.Windows[0].Rows.N[1:] },
		"no run":            func(p *atysv1.PushRequest) { p.Windows[0].Run = nil },
		"no such string":    func(p *atysv1.PushRequest) { teach(p, func(d *atysv1.Dictionary) { d.Locations[0].Name = 1 << 20 }) },
		"a caller to come":  func(p *atysv1.PushRequest) { teach(p, func(d *atysv1.Dictionary) { d.Nodes[1].Caller = 1 << 20 }) },
		"a long label":      func(p *atysv1.PushRequest) { p.Series[0].Labels["x"] = strings.Repeat("y", wire.MaxLabel+1) },
		"a step of nothing": func(p *atysv1.PushRequest) { p.Windows[0].Types[0].Scale = 0 },
		"before 1970":       func(p *atysv1.PushRequest) { p.Windows[0].StartUnixNano = -1 },
		"a huge value":      func(p *atysv1.PushRequest) { p.Windows[0].Types[0].Scale, p.Windows[0].Rows.Value[0] = 1<<40, 1<<40 },
	} {
		p := sound()
		spoil(p)
		if _, err := r.intake.Push(context.Background(), p); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v, want an invalid argument", name, err)
		}
	}
	if _, err := r.intake.Push(context.Background(), sound()); err != nil {
		t.Errorf("after all of them, a sound one: %v", err)
	}
	for path, want := range map[string]int{"/?select=%7Bservice": http.StatusBadRequest, "/?last=soon": http.StatusBadRequest, "/flame?last=-1m": http.StatusBadRequest, "/nothing": http.StatusNotFound} {
		if status, _ := r.get(t, path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// TestOthersPages has pages of other sites try to read or write here.
func TestOthersPages(t *testing.T) {
	r := start(t)
	for _, test := range []struct {
		header []string
		want   int
	}{
		{[]string{"Host", "localhost:80"}, http.StatusOK},
		{[]string{"Host", "[::1]:80"}, http.StatusOK},
		{[]string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		{[]string{"Host", "127.0.0.1.evil.example"}, http.StatusMisdirectedRequest},
		{[]string{"Origin", "http://localhost:4300"}, http.StatusOK},
		{[]string{"Origin", "http://evil.example"}, http.StatusForbidden},
		{[]string{"Origin", "null"}, http.StatusForbidden},
	} {
		if status, _ := r.get(t, "/", test.header...); status != test.want {
			t.Errorf("%v: %d, want %d", test.header, status, test.want)
		}
	}
}

// full is a store whose disk is full.
type full struct{ store.Store }

func (full) Put(context.Context, string, store.Level, *store.Batch) error {
	return fmt.Errorf("%w: no room", store.ErrFull)
}

func TestFullStore(t *testing.T) {
	s, err := New(Options{Store: full{mem.New(1)}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := request(t, false, "shop", noon)
	if _, err := s.Push(context.Background(), p); connect.CodeOf(err) != connect.CodeUnavailable || errors.Is(err, store.ErrFull) {
		t.Errorf("%v, want that it is to be sent again later, and nothing of the inside", err)
	}
}

// TestHostileNames has a service be called like a script.
func TestHostileNames(t *testing.T) {
	r := start(t)
	const name = `<script>alert(1)</script>"'`
	p, _ := request(t, false, name, noon.Add(-time.Minute))
	if _, err := r.intake.Push(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	r.store.Settle()
	if _, page := r.get(t, "/"); strings.Contains(page, "<script>alert") || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Errorf("the overview shows the name as it is:\n%s", page)
	}
}
