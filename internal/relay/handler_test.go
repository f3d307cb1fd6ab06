package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/testwait"
)

// orderly is a server that orders once it is told to.
type orderly struct {
	*keeper
	again chan bool
}

func (o *orderly) AttendTo(ctx context.Context, r *atysv1.AttendRequest, order func(*atysv1.Orders) error) error {
	for {
		if err := o.keeper.AttendTo(ctx, r, order); err != nil {
			return err
		}
		select {
		case <-o.again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// passing is a relay behind a socket, and its own server's token.
func passing(t *testing.T, to Upstream, token string, who auth.Identity) (url string, tokens *auth.Tokens, client *http.Client) {
	t.Helper()
	r := began(t, to)
	tokens, err := auth.OpenTokens("", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tokens.Add(token, who)
	h := httptest.NewServer(r.Handler(Admission{Tokens: tokens}, prometheus.NewRegistry(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(h.Close)
	return h.URL, tokens, &http.Client{Transport: &auth.Bearer{Token: func() (string, error) { return token, nil }, Scheme: "http",
		Host: h.Listener.Addr().String(), Next: h.Client().Transport}}
}

// TestTakenBack has an agent whose token is taken back get no more orders, which
// the server goes on sending to the relay.
func TestTakenBack(t *testing.T) {
	to := &orderly{newKeeper(), make(chan bool)}
	url, tokens, client := passing(t, to, "agent", auth.Identity{Tenant: "default", Role: auth.Agent})
	stream, err := atysv1connect.NewFleetClient(client, url).Attend(t.Context(), &atysv1.AttendRequest{Node: "n"})
	if err != nil || !stream.Receive() {
		t.Fatal(err)
	}
	to.again <- true
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	tokens.Add("agent", auth.Identity{Tenant: "other", Role: auth.Agent})
	to.again <- true
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("orders %v, %v", stream.Msg(), stream.Err())
	}
}

// TestOwnIsTheTenants has others than those of the relay's tenant told nothing of
// it, and what goes on inside told to its operators alone.
func TestOwnIsTheTenants(t *testing.T) {
	for who, want := range map[auth.Identity][2]int{
		{Tenant: "default", Role: auth.Reader}:   {http.StatusOK, http.StatusForbidden},
		{Tenant: "default", Role: auth.Operator}: {http.StatusOK, http.StatusOK},
		{Tenant: "default", Role: auth.Relay}:    {http.StatusForbidden, http.StatusForbidden},
		{Tenant: ItsOwn, Role: auth.Operator}:    {http.StatusOK, http.StatusOK},
		{Tenant: "other", Role: auth.Reader}:     {http.StatusForbidden, http.StatusForbidden},
		{Tenant: "other", Role: auth.Operator}:   {http.StatusForbidden, http.StatusForbidden},
	} {
		url, _, client := passing(t, newKeeper(), "token", who)
		for i, path := range []string{"/metrics", auth.InsidePath + "heap"} {
			answer, err := client.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != want[i] {
				t.Errorf("%s for %v: %s", path, who, answer.Status)
			}
		}
	}
}

// TestReadInTurn has so many pushes be read at once, and as many wait for others
// and the server as there are.
func TestReadInTurn(t *testing.T) {
	const all = 2*mostRead + 1
	read, accept, wait := make(chan bool, all), make(chan bool), make(chan bool)
	accepted := make(chan bool, all)
	h := readInTurn(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		read <- true
		<-accept
		turnOver(r.Context())
		accepted <- true
		<-wait
	}))
	var asked sync.WaitGroup
	for range all {
		asked.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)) })
	}
	for range mostRead {
		<-read
	}
	select {
	case <-read:
		t.Error("one more is read at once")
	case <-time.After(50 * time.Millisecond):
	}
	close(accept)
	for range all { // none of which has been answered
		<-accepted
	}
	close(wait)
	asked.Wait()
}

// TestPushesWaitTogether has more pushes than are read at once wait for one server.
func TestPushesWaitTogether(t *testing.T) {
	to := &stuck{newKeeper(), make(chan bool)}
	r := began(t, to)
	tokens, err := auth.OpenTokens("", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tokens.Add("agent", auth.Identity{Tenant: "default", Role: auth.Agent})
	h := httptest.NewServer(r.Handler(Admission{Tokens: tokens}, prometheus.NewRegistry(), http.NotFoundHandler()))
	t.Cleanup(h.Close)
	client := atysv1connect.NewIntakeClient(&http.Client{Transport: &auth.Bearer{Token: func() (string, error) { return "agent", nil }, Scheme: "http",
		Host: h.Listener.Addr().String(), Next: h.Client().Transport}}, h.URL)
	var agents sync.WaitGroup
	const all = 2*mostRead + 1
	for i := range all {
		agents.Go(func() {
			if err := ship(client, false, sealed(1, fmt.Sprintf("web-%03d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	for began := time.Now(); waiting(r) < all; time.Sleep(time.Millisecond) {
		if time.Since(began) > testwait.Longest(t) {
			t.Errorf("%d of %d wait for the server: the others are not read", waiting(r), all)
			break
		}
	}
	close(to.goOn)
	agents.Wait()
}

// waiting is how many pushes of a window like these a relay holds.
func waiting(r *Relay) int {
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	if err := b.Add(sealed(1, "web-000")); err != nil {
		panic(err) // it is ours
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held / proto.Size(b.Request())
}

// stuck is a server that answers once it is told to.
type stuck struct {
	*keeper
	goOn chan bool
}

func (s *stuck) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	<-s.goOn
	return s.keeper.Push(ctx, r)
}

// TestPushesThatBreakOff answers no push with success that did not come whole.
func TestPushesThatBreakOff(t *testing.T) {
	url, _, _ := passing(t, newKeeper(), "agent", auth.Identity{Tenant: "default", Role: auth.Agent})
	for range 20 { // what is ready at once is taken by chance
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST "+atysv1connect.IntakePushProcedure+" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer agent\r\n"+
			"Content-Type: application/proto\r\nContent-Length: 100\r\n\r\nsome of it"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.(*net.TCPConn).CloseWrite(), c.SetReadDeadline(time.Now().Add(testwait.Longest(t)))); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("it is answered %s", answer.Status)
		}
	}
}

// TestNobodyWaits gives a push a status that looks as if nobody waited for its answer.
func TestNobodyWaits(t *testing.T) {
	goOn, begun := make(chan bool), make(chan bool)
	h := readInTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-goOn
	}))
	var busy sync.WaitGroup
	for range mostRead {
		busy.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)) })
		<-begun
	}
	defer busy.Wait()
	defer close(goOn)
	ended, end := context.WithCancel(t.Context())
	end()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ended, http.MethodPost, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("it is answered %d", w.Code)
	}
}
