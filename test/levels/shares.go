package levels

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Share is what a function, with all it called, has of a part.
type Share struct {
	Of string // the instance; "": all of them
	stats.Interval
	N   int64         // samples on it
	CPU time.Duration // exactly used by the part
}

// Asker asks a server for shares of one function.
type Asker struct {
	connect.HTTPClient
	URL, Function, Kind string
	From, To            time.Time
}

func (a *Asker) about(selector string) *atysv1.Selection {
	return &atysv1.Selection{Select: selector, Kind: a.Kind, FromUnixNano: a.From.UnixNano(), ToUnixNano: a.To.UnixNano()}
}

// ByInstance gives the share in each instance, by its name.
func (a *Asker) ByInstance(ctx context.Context, selector string) ([]Share, error) {
	return a.split(ctx, selector, "instance")
}

// Merged gives the share in all that is selected, added up.
func (a *Asker) Merged(ctx context.Context, selector string) (Share, error) {
	all, err := a.split(ctx, selector, "")
	if err != nil {
		return Share{}, err
	}
	if len(all) != 1 {
		return Share{}, fmt.Errorf("%s: %d parts of what is not split", selector, len(all))
	}
	return all[0], nil
}

func (a *Asker) split(ctx context.Context, selector, by string) (all []Share, err error) {
	response, err := atysv1connect.NewQueryClient(a, a.URL).Split(ctx, &atysv1.SplitRequest{Selection: a.about(selector), By: by, Function: a.Function})
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", selector, err)
	}
	for _, p := range response.GetParts() {
		s := p.GetShare()
		all = append(all, Share{p.GetBy(), stats.Interval{Value: s.GetValue(), Low: s.GetLow(), High: s.GetHigh()}, p.GetN(), time.Duration(p.GetCpuNs())})
	}
	slices.SortFunc(all, func(x, y Share) int { return strings.Compare(x.Of, y.Of) })
	return all, nil
}

// Settled waits until the server has windows of what each selector chooses that begin
// at the end of what is asked for, or later: agents ship those before first.
func (a *Asker) Settled(ctx context.Context, patience time.Duration, selectors ...string) error {
	later := *a
	later.From, later.To = a.To, a.To.Add(time.Hour)
	for began := time.Now(); len(selectors) > 0; {
		all, err := later.split(ctx, selectors[0], "")
		switch {
		case err != nil:
			return err
		case len(all) > 0:
			selectors = selectors[1:]
			continue
		case time.Since(began) > patience:
			return fmt.Errorf("nothing of %s came within %v", selectors[0], patience)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Callers gives the application's functions that call the function, with what of
// all is spent in it, the most first.
func (a *Asker) Callers(ctx context.Context, selector string) (functions []*atysv1.FunctionAmount, err error) {
	response, err := atysv1connect.NewQueryClient(a, a.URL).Top(ctx, &atysv1.TopRequest{Selection: a.about(selector), Fold: "own", Callers: a.Function})
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", selector, err)
	}
	for _, f := range response.GetFunctions() {
		if f.GetSelf().GetN() > 0 {
			functions = append(functions, f)
		}
	}
	return functions, nil
}

// Mean is the mean of the shares of instances, each as much as the CPU time that it
// used weighs: what the share of all of them has to be. The parts' intervals are of
// samples that know nothing of each other.
func Mean(parts []Share) Share {
	mean := Share{}
	for _, p := range parts {
		mean.CPU += p.CPU
		mean.N += p.N
	}
	low, high := 0.0, 0.0
	for _, p := range parts {
		weight := p.CPU.Seconds() / mean.CPU.Seconds()
		mean.Value += weight * p.Value
		low += math.Pow(weight*(p.Value-p.Low), 2)
		high += math.Pow(weight*(p.High-p.Value), 2)
	}
	mean.Low, mean.High = mean.Value-math.Sqrt(low), mean.Value+math.Sqrt(high)
	return mean
}
