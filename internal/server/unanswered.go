package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire/atysv1"
)

// Rates refuses to tell what policies decided: the server decides nothing yet.
func (s *Server) Rates(context.Context, *atysv1.RatesRequest) (*atysv1.RatesResponse, error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("rates are not decided here"))
}
