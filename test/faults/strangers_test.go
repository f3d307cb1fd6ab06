package faults

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/testwait"
)

// stranger is a request that no agent and no command makes.
type stranger struct {
	kind, encoding string
	body           []byte
}

// strangers send what nobody takes, whatever is asked.
func strangers(t *testing.T) map[string]stranger {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	return map[string]stranger{
		"noise":             {"application/proto", "", noise},
		"noise, compressed": {"application/proto", "gzip", noise},
		"a bomb":            {"application/proto", "gzip", compressed(t, make([]byte, 1<<20), 1<<10)},
		"too much":          {"application/proto", "", make([]byte, 40<<20)},
		"no JSON":           {"application/json", "", []byte(`[{"windows":1e99}]`)},
		"deep JSON":         {"application/json", "", bytes.Repeat([]byte(`{"windows":[`), 80_000)},
		"no such encoding":  {"application/proto", "zip", noise},
		"no such type":      {"text/html", "", noise},
	}
}

// compressed is data, so many times over.
func compressed(t *testing.T, data []byte, times int) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for range times {
		if _, err := z.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// packed is text of a selection, or of whatever else is first in a message: as much
// as a request may have, and a few kilobytes on its way.
func packed(t *testing.T) stranger {
	t.Helper()
	inner := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), strings.Repeat("x", wire.MaxRequest-100_000))
	return stranger{"application/proto", "gzip", compressed(t, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner), 1)}
}

// labelled is a window of a series with one label.
func labelled(t *testing.T, name, value string) stranger {
	t.Helper()
	m, err := proto.Marshal(&atysv1.PushRequest{Series: []*atysv1.Series{{Labels: map[string]string{name: value}}}, Windows: []*atysv1.Window{{}}})
	if err != nil {
		t.Fatal(err)
	}
	return stranger{"application/proto", "", m}
}

// post sends it; 0: there is no answer. The server may hang up on who sends too much.
func (r stranger) post(ctx context.Context, client *http.Client, url string) (status int, text string) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.body))
	if err != nil {
		return 0, err.Error()
	}
	q.Header.Set("Content-Type", r.kind)
	if r.encoding != "" {
		q.Header.Set("Content-Encoding", r.encoding)
	}
	answer, err := client.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, string(said)
}

// procedures lists all that is answered at once.
func procedures() (all []string) {
	services := atysv1.File_atys_proto.Services()
	for i := range services.Len() {
		for methods, j := services.Get(i).Methods(), 0; j < methods.Len(); j++ {
			if m := methods.Get(j); !m.IsStreamingServer() {
				all = append(all, "/"+string(m.Parent().FullName())+"/"+string(m.Name()))
			}
		}
	}
	return all
}

// subject is who is asked by strangers.
type subject interface {
	Receiver
	Log() string
}

// TestStrangers sends what no agent would, and nobody who asks, to a server and to a
// relay of it: it is refused in words, and whoever asks next is answered.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	subjects := map[string]subject{"server": s, "relay": relay(t, s, s, "between"), "adding": relay(t, s, s, "adding", "--merge", "service,instance")}
	for name, to := range subjects {
		one := NewSender(to, name)
		if err := one.Send(t.Context()); err != nil { // once it has reached its server
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { disturb(t, to, one, s.Dir) })
		check(t, s, one)
	}
}

// disturb has strangers ask somebody, to whom one sends between; dir is nobody's business.
func disturb(t *testing.T, to subject, one *Sender, dir string) {
	client := to.Client()
	refused := func(name, procedure string, r stranger) {
		status, text := r.post(t.Context(), client, to.URL()+procedure)
		if status >= 200 && status < 300 || status >= 500 && status != http.StatusNotImplemented {
			t.Errorf("%s to %s: %d %.200s", name, procedure, status, text)
		}
		if strings.Contains(text, "goroutine") || strings.Contains(text, dir) {
			t.Errorf("%s to %s: the answer tells too much: %.200s", name, procedure, text)
		}
	}
	for name, r := range strangers(t) {
		for _, procedure := range procedures() {
			refused(name, procedure, r)
		}
		if err := one.Send(t.Context()); err != nil {
			t.Fatalf("after %s: %v: %s", name, err, to.Log())
		}
	}
	for _, r := range []stranger{labelled(t, "x", strings.Repeat("x", 1000)), labelled(t, strings.Repeat("x", 1000), "x")} {
		refused("a long label", atysv1connect.IntakePushProcedure, r)
	}
}

// TestStrangersAtOnce has hundreds send, again and again, a few kilobytes that are
// unpacked to many megabytes, to a server and to a relay: its memory is bounded, and others are
// answered.
func TestStrangersAtOnce(t *testing.T) {
	s := serve(t, t.TempDir())
	one := NewSender(s, "web")
	if sendUntil(t, one, 20) {
		t.Fatal(s.Log())
	}
	between := relay(t, s, s, "between")
	through := NewSender(between, "through")
	if sendUntil(t, through, 20) {
		t.Fatal(between.Log())
	}
	all := func(string) bool { return true }
	ships := func(procedure string) bool { return procedure == atysv1connect.IntakePushProcedure }
	shipsNot := func(procedure string) bool { return !ships(procedure) }
	const few = 800 // megabytes; 170 to 330 as a rule, more where garbage waits for a busy machine, 2600 where nobody bounds it
	for _, test := range []struct {
		name   string
		to     Receiver
		at     *process.Process
		client *http.Client
		most   int // megabytes
		may    func(procedure string) bool
	}{
		{"who need not say who they are", s, s.Process, &http.Client{}, few, all},
		{"who may do all but ship", s, s.Process, s.Client(), few, shipsNot},
		{"who ship", s, s.Process, s.Client(), 1700, ships},
		{"who need not say who they are, to a relay", between, between.Process, &http.Client{}, few, all},
		{"who may do all but ship, to a relay", between, between.Process, between.Client(), few, shipsNot},
		{"who ship to a relay", between, between.Process, between.Client(), 1700, ships},
	} {
		t.Run(test.name, func(t *testing.T) {
			resetPeak(t, test.at)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			asked := flood(ctx, t, test.client, test.to.URL(), test.may)
			slowest := pages(ctx, t, s.URL())
			n := asked()
			peak := peak(t, test.at)
			t.Logf("%d requests, a peak of %d MB, a page within %v", n, peak, slowest)
			if peak > test.most {
				t.Errorf("it took %d MB, want at most %d", peak, test.most)
			}
			if slowest > time.Minute { // a second on a machine of its own
				t.Errorf("a page takes %v", slowest)
			}
		})
	}
	for _, sender := range []*Sender{one, through} {
		if err := sender.Send(t.Context()); err != nil {
			t.Error(err)
		}
	}
	check(t, s, one, through)
}

// flood has strangers ask until the context ends; what it gives waits for them, and
// tells how often they were answered.
func flood(ctx context.Context, t *testing.T, client *http.Client, url string, may func(string) bool) (ended func() int64) {
	t.Helper()
	const strangers = 200
	r := packed(t)
	var asked atomic.Int64
	var all sync.WaitGroup
	client = &http.Client{Transport: client.Transport} // which waits for as long as it takes
	some := slices.DeleteFunc(procedures(), func(procedure string) bool { return !may(procedure) })
	for i := range strangers {
		all.Go(func() {
			for j := i; ctx.Err() == nil; j++ {
				if status, _ := r.post(ctx, client, url+some[j%len(some)]); status != 0 {
					asked.Add(1)
				}
			}
		})
	}
	return func() int64 {
		all.Wait()
		return asked.Load()
	}
}

// pages asks for one again and again until the context ends, and tells how long the
// slowest took.
func pages(ctx context.Context, t *testing.T, url string) (slowest time.Duration) {
	t.Helper()
	for ctx.Err() == nil {
		began := time.Now()
		answer, err := (&http.Client{Timeout: testwait.Longest(t)}).Get(url + "/?last=1h")
		if err != nil {
			t.Errorf("a page: %v", err)
			return 0
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusOK {
			t.Errorf("a page: %s", answer.Status)
		}
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}

// resetPeak has the kernel forget how much memory a process had at most.
func resetPeak(t *testing.T, p *process.Process) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is how many megabytes a process had at most.
func peak(t *testing.T, p *process.Process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatalf("%v: %s", err, p.Log())
	}
	found := peakLine.FindSubmatch(status)
	if found == nil {
		t.Fatalf("its status is %s", status)
	}
	kilobytes, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes >> 10
}
