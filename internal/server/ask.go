package server

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Merge adds windows up; see the service Query.
func (s *Server) Merge(ctx context.Context, r *atysv1.MergeRequest) (*atysv1.MergeResponse, error) {
	selector, err := spec.ParseSelector(r.GetSelect())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if r.GetKind() == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("say the kind of values, such as cpu"))
	}
	service, _ := selector.Equals(store.ServiceLabel)
	q := store.Query{Level: store.Raw, Service: service, Match: selector.Matches, Task: r.GetTask(),
		From: time.Unix(0, r.GetFromUnixNano()), To: time.Unix(0, r.GetToUnixNano())}
	m, err := s.options.Store.Merge(ctx, s.options.Tenant, q, r.GetKind(), store.Grouping{})
	if err != nil {
		s.log.Error("merge windows", "error", err)
		return nil, connect.NewError(connect.CodeInternal, errors.New("the windows could not be read: the server's log says why"))
	}
	response := &atysv1.MergeResponse{Damaged: uint32(m.Damaged)}
	if len(m.Columns) == 0 {
		return response, nil
	}
	w, err := query.Window(m, 0, r.GetKind())
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	response.Window, response.Windows = wire.Seal(w, profile.Run{}), uint32(m.Columns[0].Windows)
	return response, nil
}
