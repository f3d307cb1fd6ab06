package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// asker is who reads what the server has.
type asker struct {
	query    atysv1connect.QueryClient
	from, to time.Time
}

func newAsker(server string, token func() (string, error), from, to time.Time) (*asker, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &auth.Bearer{Token: token, Scheme: u.Scheme, Host: u.Host, Next: &http.Transport{}}}
	return &asker{atysv1connect.NewQueryClient(client, server, wire.Packing(wire.GzipName)), from, to}, nil
}

func (a *asker) selection(selector string, from time.Time) *atysv1.Selection {
	return &atysv1.Selection{Select: selector, Task: task, Kind: kind, FromUnixNano: from.UnixNano(), ToUnixNano: a.to.UnixNano()}
}

// kept counts windows by instance.
func (a *asker) kept(ctx context.Context) (map[string]int, error) {
	all := map[string]int{}
	for i := range services {
		r, err := a.query.Split(ctx, &atysv1.SplitRequest{By: "instance", Selection: a.selection(fmt.Sprintf(`{service="service-%02d"}`, i), a.from)})
		if err != nil {
			return nil, err
		}
		for _, p := range r.GetParts() {
			all[p.GetBy()] += int(p.GetWindows())
		}
	}
	return all, nil
}

// lost counts windows that the server said it has, and has not.
func lost(said, kept map[string]int) (missing int) {
	for instance, n := range said {
		missing += max(0, n-kept[instance])
	}
	return missing
}

// graph is how long a flame graph takes, of the last ten minutes: the middle of
// a few.
func (a *asker) graph(ctx context.Context, selector string) (middle time.Duration, windows uint32, err error) {
	var took []time.Duration
	from := a.to.Add(-10 * time.Minute)
	if from.Before(a.from) {
		from = a.from
	}
	for range 5 {
		began := time.Now()
		r, err := a.query.Merge(ctx, &atysv1.MergeRequest{Selection: a.selection(selector, from)})
		if err != nil {
			return 0, 0, err
		}
		took, windows = append(took, time.Since(began)), r.GetCoverage().GetWindows()
	}
	return median(took), windows, nil
}
