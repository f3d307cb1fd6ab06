package golden

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/relay"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// serve serves a new store, in which what is sent can be looked at.
func serve(t *testing.T) (*Served, store.Store) {
	t.Helper()
	s := open(t, t.TempDir())
	at, err := Serve(s, "", Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Close)
	return at, s
}

// counting counts the windows that an intake acknowledges.
type counting struct {
	agent.Intake
	windows int
}

// Push passes windows on.
func (c *counting) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	answer, err := c.Intake.Push(ctx, r)
	if err == nil && len(answer.GetUnknown())+len(answer.GetOverlaps())+len(answer.GetRefused()) == 0 {
		c.windows += len(r.GetWindows())
	}
	return answer, err
}

// TestSpool has an agent of this version ship what an earlier one has left: each window
// is acknowledged once, and what was lost stays counted.
func TestSpool(t *testing.T) {
	eachVersion(t, Spool, func(t *testing.T, version, dir string) {
		waiting, err := spool.Open(dir, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		before := waiting.Stats()
		at, s := serve(t)
		to := &counting{Intake: at.Remote(auth.Agent)}
		drain(t, waiting, to)
		after := waiting.Stats()
		if after.Records != 0 || to.windows != before.Records || after.Losses != before.Losses {
			t.Errorf("of %+v %d windows were acknowledged, and %+v is left", before, to.windows, after)
		}
		holds(t, version, Spool, fmt.Sprintf("%d bundles, %d records, lost %+v, untold %+v\n%s", before.Bundles, before.Records, before.Losses, waiting.Untold(), kept(t, s)))
		if err := waiting.Close(); err != nil {
			t.Fatal(err)
		}
		if waiting, err = spool.Open(dir, 8<<20); err != nil || waiting.Stats().Records != 0 {
			t.Fatalf("opened again it has %+v, %v", waiting.Stats(), err)
		}
		if err := waiting.Close(); err != nil {
			t.Error(err)
		}
	})
}

// drain runs an agent that records nothing until its spool is empty.
func drain(t *testing.T, waiting *spool.Spool, to agent.Intake) {
	t.Helper()
	a, err := agent.New(agent.Options{Node: "n1", Spool: waiting, Intake: to,
		Record: func(agent.Wanted) (sampler.Sampler, error) { return idle{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for waiting.Stats().Records > 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// idle is a recording in which nothing happens.
type idle struct{}

func (idle) Cut(sampler.Edge) ([]*profile.Window, error) {
	return []*profile.Window{profile.NewBuilder(profile.Head{Start: Now(), Types: []profile.ValueType{profile.CPUTime(0)}}).Window()}, nil
}
func (idle) Close() error { return nil }

// TestRequests makes requests again that agents and relays of an earlier version have
// made, of a server of this one: it answers the same, and keeps the same.
func TestRequests(t *testing.T) {
	eachVersion(t, Requests, func(t *testing.T, version, dir string) {
		exchanges := exchangesOf(t, dir)
		at, s := serve(t)
		applyAlways(t, at)
		roles := map[string]auth.Role{"agent": auth.Agent, "passing": auth.Relay, "adding": auth.Relay}
		for _, e := range exchanges {
			replay(t, &e, at.As(roles[e.Sender()]), at.URL)
		}
		holds(t, version, Requests, kept(t, s)+agents(t, at))
	})
}

// TestRequestsToRelay makes those of the agent of a relay of this version: the server has
// the same then.
func TestRequestsToRelay(t *testing.T) {
	eachVersion(t, Requests, func(t *testing.T, version, dir string) {
		at, s := serve(t)
		applyAlways(t, at)
		ctx, stop := context.WithCancel(t.Context())
		passing := relay.New(relay.Options{Offer: &atysv1.OfferRequest{Name: "passing", Address: "http://127.0.0.1:1"}, Upstream: at.Remote(auth.Relay),
			Gather: time.Millisecond, Now: Now})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			passing.Run(ctx)
		}()
		t.Cleanup(func() {
			stop()
			<-ended
		})
		front := serveRelay(t, passing)
		for _, e := range exchangesOf(t, dir) {
			switch {
			case e.Method() == "Offer" || e.Method() == "Stand": // there is another one
			case e.Sender() == "agent":
				replay(t, &e, http.DefaultClient, front)
			default:
				replay(t, &e, at.As(auth.Relay), at.URL)
			}
		}
		holds(t, version, Requests, kept(t, s)+agents(t, at))
	})
}

func exchangesOf(t *testing.T, dir string) []Exchange {
	t.Helper()
	all, err := Exchanges(dir)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d requests, %v", len(all), err)
	}
	return all
}

// applyAlways orders what was ordered when the requests were made.
func applyAlways(t *testing.T, at *Served) {
	t.Helper()
	control := atysv1connect.NewControlClient(at.As(auth.Operator), at.URL, Asking())
	if _, err := control.Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{`{"kind":"Profile","name":"always","window":"1s"}`}}); err != nil {
		t.Fatal(err)
	}
}

// agents are what a server knows of agents that have reported.
func agents(t *testing.T, at *Served) string {
	t.Helper()
	control := atysv1connect.NewControlClient(at.As(auth.Operator), at.URL, Asking())
	var out strings.Builder
	for _, kind := range []string{"agents", "targets"} {
		got, err := control.Get(t.Context(), &atysv1.GetRequest{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range got.GetObjects() {
			fmt.Fprintf(&out, "%s %s\n", kind, o.GetName())
		}
	}
	return out.String()
}

// replay makes a request again, and compares the answers by what they mean.
func replay(t *testing.T, e *Exchange, client *http.Client, address string) {
	t.Helper()
	e.Request.Header.Del("Connect-Timeout-Ms") // the time that was left when it was made
	if method := e.Method(); method == "Attend" || method == "Offer" {
		stream(t, e, client, address)
		return
	}
	response, body, err := e.Again(client, address)
	if err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	if e.Method() == "Stand" { // it answers an offer of another server
		return
	}
	if response.StatusCode != e.Answer.StatusCode {
		t.Fatalf("%s: %s, and was %s: %s", e.Name, response.Status, e.Answer.Status, body)
	}
	if e.Method() != "Push" {
		return
	}
	got, want := &atysv1.PushResponse{}, &atysv1.PushResponse{}
	unpack(t, e.Name, response.Header, body, got)
	unpack(t, e.Name, e.Answer.Header, e.AnswerContent, want)
	for _, m := range []*atysv1.PushResponse{got, want} {
		m.ReceivedUnixNano, m.AnsweredUnixNano, m.ClockErrorNs = 0, 0, 0
		m.TakesDivided = false // earlier versions did not tell
		hashes, err := wire.Hashes(m.GetUnknown())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(hashes, func(a, b profile.Hash) int { return bytes.Compare(a[:], b[:]) })
		m.Unknown = wire.Table(hashes)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s is answered %v, and was %v", e.Name, got, want)
	}
}

// unpack reads an answer as it was packed.
func unpack(t *testing.T, name string, h http.Header, body []byte, m proto.Message) {
	t.Helper()
	var err error
	switch h.Get("Content-Encoding") {
	case wire.ZstdName:
		var z *zstd.Decoder
		if z, err = zstd.NewReader(nil); err == nil {
			body, err = z.DecodeAll(body, nil)
			z.Close()
		}
	case wire.GzipName:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			var out bytes.Buffer
			_, err = out.ReadFrom(z)
			body = out.Bytes()
		}
	}
	if err == nil {
		err = proto.Unmarshal(body, m)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// stream asks for orders, or to be a relay, and reads what comes first.
func stream(t *testing.T, e *Exchange, client *http.Client, address string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), e.Request.Method, address+e.Request.URL.Path, bytes.NewReader(e.Body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header = e.Request.Header.Clone()
	response, err := client.Do(q)
	if err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	defer response.Body.Close()
	first := make([]byte, 5)
	if _, err := response.Body.Read(first); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", e.Name, response.Status, err)
	}
	if first[0] > 1 { // compressed or not, a message: an error would be an end
		t.Errorf("%s is answered by the end %x", e.Name, first)
	}
}

// serveRelay gives the address of a relay that has reached its server.
func serveRelay(t *testing.T, r *relay.Relay) string {
	t.Helper()
	front := httptest.NewServer(RelayHandler(r))
	t.Cleanup(front.Close)
	client := atysv1connect.NewIntakeClient(http.DefaultClient, front.URL, Asking())
	for {
		_, err := client.Push(t.Context(), &atysv1.PushRequest{})
		if err == nil {
			return front.URL
		}
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}
