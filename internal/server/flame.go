package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	fold "atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/server/ui"
	"atys.dev/atys/internal/wire/atysv1"
)

// defaultNodes is how many nodes a flame graph has unless the request says otherwise: more
// than a screen shows.
const defaultNodes = 20_000

// Flame draws what Merge adds up; see the service Query.
func (s *queries) Flame(ctx context.Context, r *atysv1.FlameRequest) (*atysv1.FlameResponse, error) {
	about, err := selection(r.GetSelection())
	if err != nil {
		return nil, err
	}
	own := query.Fold(r.GetFold()) == query.FoldOwn
	if !own && query.Fold(r.GetFold()) != query.FoldNothing {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("fold %q: want %s, or nothing", r.GetFold(), query.FoldOwn))
	}
	grove, coverage, err := s.asker(ctx).Merge(ctx, about)
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.FlameResponse{Coverage: coverageMessage(coverage)}
	if grove == nil {
		return response, nil
	}
	if grove = s.classes.Of(grove); own {
		grove = fold.OwnGrove(grove)
	}
	tree, nodes, most := grove.Tree(), 0, int(cmp.Or(r.GetNodes(), defaultNodes))
	tree.Walk(func(*profile.Node, int) { nodes++ })
	fold.Bound(tree, most)
	response.Folded = uint32(max(nodes-1-most, 0)) // the root stays
	lacks := ui.CoverageWords(coverage, about.From, about.To)
	var out bytes.Buffer
	if err := render.Document(&out, tree, render.Options{Title: r.GetTitle(), Lacks: &lacks}); err != nil {
		return nil, s.unread(err)
	}
	response.Document = out.Bytes()
	return response, nil
}

const (
	defaultLines = 10
	mostLines    = 100
)

// Series gives values over time; see the service Query.
func (s *queries) Series(ctx context.Context, r *atysv1.SeriesRequest) (*atysv1.SeriesResponse, error) {
	about, err := selection(r.GetSelection())
	if err != nil {
		return nil, err
	}
	step, limit := time.Duration(r.GetStepNs()), cmp.Or(r.GetLimit(), defaultLines)
	const mostSteps = 2000
	switch {
	case step <= 0 || about.To.Sub(about.From)/step > mostSteps:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("steps of %v from %v to %v: at most %d are answered: use steps of %v, or a shorter time", step, about.From.UTC(), about.To.UTC(), mostSteps,
			leastStep(about.To.Sub(about.From), mostSteps)))
	case limit > mostLines:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d lines: at most %d are answered at once", limit, mostLines))
	case r.GetBy() == query.ByThread:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("lines by thread: want a label, or nothing for functions"))
	}
	answer, err := s.asker(ctx).Series(ctx, about, query.SeriesOptions{Step: step, By: r.GetBy(), Limit: int(limit)})
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.SeriesResponse{Unit: answer.Unit, Coverage: coverageMessage(answer.Coverage)}
	for _, l := range answer.Lines {
		line := &atysv1.SeriesLine{Name: legible(l.Name), Other: l.Other, Value: l.Value}
		for _, p := range l.Points {
			point := &atysv1.SeriesPoint{StartUnixNano: p.Start.UnixNano(), N: p.N, Value: p.Value, Share: intervalMessage(p.Share)}
			if p.ServiceKnown {
				point.Service = intervalMessage(p.Service)
			}
			line.Points = append(line.Points, point)
		}
		response.Lines = append(response.Lines, line)
	}
	return response, nil
}
