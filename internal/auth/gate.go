package auth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// Why a request is refused. What is said of it tells nothing of what is known.
var (
	ErrUnknown  = errors.New("say who you are: a token of this server (Authorization: Bearer ..., or as a password), or a certificate it trusts")
	ErrRefused  = errors.New("this token or certificate is not known here")
	ErrTooOften = errors.New("too many requests: come again in a moment")
)

// ForbiddenError says that who asks may not.
type ForbiddenError struct{ Has, Needs Role }

func (e *ForbiddenError) Error() string {
	return "your role is " + string(e.Has) + ", and this needs " + string(e.Needs)
}

// Gate lets those through who may.
type Gate struct {
	Tokens *Tokens
	// Local, if not nil, is whoever asks without saying who they are: only
	// where nobody but this machine can ask.
	Local *Identity
	// Needs tells the role a request needs; "" is none, not even a name.
	Needs func(*http.Request) Role
	// Refuse answers who is not let through: nil: in plain text.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, err error)
	// Limit bounds how often somebody may ask, and how often somebody may be
	// refused at an address; nil: no bound.
	Limit *Limit
	// Now tells whether a certificate still holds; nil: time.Now.
	Now func() time.Time
}

// Wrap puts the gate before a handler.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		needs := g.Needs(r)
		if needs == "" {
			next.ServeHTTP(w, r)
			return
		}
		who, err := g.identify(r) // nobody, if there is an error: of those only the address is known
		switch {
		case !g.Limit.allow(who, r.RemoteAddr):
			w.Header().Set("Retry-After", "1")
			g.refuse(w, r, http.StatusTooManyRequests, ErrTooOften)
		case errors.Is(err, ErrUnknown):
			w.Header().Set("WWW-Authenticate", `Basic realm="atys: any name, a token as the password", charset="UTF-8"`)
			g.refuse(w, r, http.StatusUnauthorized, err)
		case err != nil:
			g.refuse(w, r, http.StatusUnauthorized, err)
		case !who.Role.May(needs):
			g.refuse(w, r, http.StatusForbidden, &ForbiddenError{who.Role, needs})
		default:
			letThrough(r.Context())
			again := func() error { return g.again(r, who) }
			next.ServeHTTP(w, r.WithContext(context.WithValue(With(r.Context(), who), stillKey{}, again)))
		}
	})
}

// again asks once more who asks: a token may have been taken back since, or be
// somebody else's, and a certificate may have run out.
func (g *Gate) again(r *http.Request, before Identity) error {
	who, err := g.identify(r)
	if err == nil && who != before {
		err = ErrRefused
	}
	return err
}

type stillKey struct{}

// Still refuses who was let through and would be no more: answers that never end
// ask it again and again. Who never came through a gate stays.
func Still(ctx context.Context) error {
	again, ok := ctx.Value(stillKey{}).(func() error)
	if !ok {
		return nil
	}
	if err := again(); err != nil {
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	return nil
}

func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if g.Refuse != nil {
		g.Refuse(w, r, status, err)
		return
	}
	http.Error(w, err.Error(), status)
}

// identify finds out who asks. A token that is not known is refused also where
// none is needed: who shows one means to be known.
func (g *Gate) identify(r *http.Request) (Identity, error) {
	if token, ok := tokenOf(r); ok {
		if who, ok := g.Tokens.Holder(token); ok {
			return who, nil
		}
		return Identity{}, ErrRefused
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		certificate := r.TLS.VerifiedChains[0][0]
		who, err := Subject(certificate)
		if err != nil || g.now().After(certificate.NotAfter) { // connections may stand for longer
			return Identity{}, ErrRefused
		}
		return who, nil
	}
	if g.Local != nil {
		return *g.Local, nil
	}
	return Identity{}, ErrUnknown
}

func (g *Gate) now() time.Time {
	if g.Now == nil {
		return time.Now()
	}
	return g.Now()
}

// tokenOf finds a request's token. Browsers and Prometheus send it as a password.
func tokenOf(r *http.Request) (string, bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, true
	}
	const scheme = "bearer "
	header := r.Header.Get("Authorization")
	if len(header) > len(scheme) && strings.EqualFold(header[:len(scheme)], scheme) {
		return strings.TrimSpace(header[len(scheme):]), true
	}
	return "", header != ""
}

// machine is the address a request came from, without its port.
func machine(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
