package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"atys.dev/atys/internal/auth"
)

// listenFlags say where to answer, and whom.
type listenFlags struct {
	listen    string
	tokens    string
	cert, key string
	clientCA  string
	hosts     []string
	plaintext bool
	rate      float64
}

func (f *listenFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", defaultListen, "address to listen on; port 0 takes a free one")
	flags.StringVar(&f.tokens, "tokens", "", "file of tokens that are accepted (\"atys token\" writes it); if set, every request needs one")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate of this server, in PEM; read again when it changes")
	flags.StringVar(&f.key, "tls-key", "", "its key")
	flags.StringVar(&f.clientCA, "tls-client-ca", "", "authorities of accepted client certificates: O is the tenant, OU the role, CN the name")
	flags.StringSliceVar(&f.hosts, "host", nil, "additional host name under which browsers reach this server, beside localhost")
	flags.BoolVar(&f.plaintext, "plaintext", false, "serve other machines without TLS, for use behind a proxy that has it: tokens can be read on the network")
	f.addRate(flags, "")
	for _, name := range []string{"tokens", "tls-cert", "tls-key", "tls-client-ca"} {
		_ = c.MarkFlagFilename(name)
	}
}

// addRate adds the flag that bounds how often somebody may ask; where says of what.
func (f *listenFlags) addRate(flags *pflag.FlagSet, where string) {
	flags.Float64Var(&f.rate, "request-rate", 200, where+"requests a second per client, with bursts of ten times that; 0: unlimited")
}

// mostRate is far more than anybody is answered.
const mostRate = 1_000_000

// door is where somebody is answered, and who is.
type door struct {
	listener net.Listener
	tokens   *auth.Tokens
	local    bool // who asks without saying who they are may read
	limit    *auth.Limit
}

// open listens. Elsewhere than on this machine it wants TLS.
func (f *listenFlags) open(flag string, log *slog.Logger) (d door, err error) {
	alone, err := isLocal(f.listen)
	if err != nil {
		return d, &usageError{fmt.Errorf("%s %q: %w", flag, f.listen, err)}
	}
	if (f.cert == "") != (f.key == "") {
		return d, &usageError{errors.New("--tls-cert and --tls-key go together: a certificate and its key")}
	}
	if !alone && f.cert == "" && !f.plaintext {
		return d, &usageError{fmt.Errorf("%s %q can be reached from other machines: give --tls-cert and --tls-key, or --plaintext behind a proxy that has TLS", flag, f.listen)}
	}
	if f.clientCA != "" && f.cert == "" {
		return d, &usageError{errors.New("--tls-client-ca: clients' certificates need TLS: give --tls-cert and --tls-key")}
	}
	if !(f.rate >= 0 && f.rate <= mostRate) { // nor is NaN
		return d, &usageError{fmt.Errorf("--request-rate %v: want 0 (any) to %d requests a second", f.rate, mostRate)}
	}
	d.local = alone && f.tokens == "" && f.clientCA == ""
	if d.tokens, err = auth.OpenTokens(f.tokens, time.Now, log); err != nil {
		return d, err
	}
	d.limit = &auth.Limit{Rate: f.rate, Burst: 10 * f.rate, Now: time.Now}
	var config *tls.Config
	if f.cert != "" {
		if config, err = auth.ServerTLS(f.cert, f.key, f.clientCA, time.Now); err != nil {
			return d, err
		}
	}
	listener, err := net.Listen("tcp", exactly(f.listen))
	if err != nil {
		return d, fmt.Errorf("answer at %s: %w (%s takes another address)", f.listen, err, flag)
	}
	d.listener = auth.BoundConnections(listener, auth.MaxConnections(), log)
	if config != nil {
		d.listener = tls.NewListener(d.listener, config)
	}
	return d, nil
}

// address is how others find the door.
func (f *listenFlags) address(at net.Addr) string {
	scheme := "http"
	if f.cert != "" {
		scheme = "https"
	}
	return scheme + "://" + at.String()
}

// isLocal tells whether an address can be reached from this machine alone.
func isLocal(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, errors.New("want an address and a port, such as 127.0.0.1:4300")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// idleConnection is how long a connection may stay that nobody uses, also one that
// nobody has used yet: clients make one in case, and would send their next window
// by it just when it is closed. They give theirs up before.
const (
	idleConnection       = 2 * time.Minute
	idleClientConnection = 90 * time.Second
)

// httpServer answers with what bounds how long strangers keep it busy. gRPC
// wants HTTP/2, also without TLS.
func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: &protocols, ReadHeaderTimeout: idleConnection, IdleTimeout: idleConnection, MaxHeaderBytes: 64 << 10,
		ConnState: auth.TrackUse, ConnContext: auth.WithConnection, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// answer serves until what it gives is called, which lets those finish who have
// asked. lost is called when it ends.
func (d *door) answer(h http.Handler, log *slog.Logger, lost func()) (shut func() error) {
	s := httpServer(h, log)
	served := make(chan error, 1)
	go func() {
		defer lost() // nobody is answered any more
		served <- s.Serve(d.listener)
	}()
	return func() (err error) {
		farewell, done := context.WithTimeout(context.Background(), 2*time.Second)
		defer done()
		if s.Shutdown(farewell) != nil {
			err = s.Close()
		}
		if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	}
}

// operatorFile is where a server keeps the token of who runs it.
const operatorFile = "operator.token"

// admitOperator has a token known, and this user's commands and agents find it
// until leave is called.
func (d *door) admitOperator(tenant, token string) (leave func(), err error) {
	d.tokens.Add(token, auth.Identity{Tenant: tenant, Role: auth.Operator, Name: "operator"})
	beside := operatorBeside(d.listener.Addr().String())
	if beside == "" {
		return func() {}, nil
	}
	if leave, err = auth.HoldSecret(beside, token); err != nil {
		return nil, fmt.Errorf("keep the operator's token for commands: %w", err)
	}
	return leave, nil
}

// operatorBeside is where commands of this user look for the token of a server
// at an address of this machine; "" where there is no place for it.
func operatorBeside(address string) string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if os.Geteuid() == 0 {
		dir = "/run"
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	host, port, err := net.SplitHostPort(exactly(address))
	ip := net.ParseIP(host)
	if err != nil || ip == nil || strings.ContainsAny(port, "/.") {
		return ""
	}
	if ip.IsUnspecified() { // it answers at all addresses
		host = "127.0.0.1"
	}
	return filepath.Join(dir, "atys", strings.ReplaceAll(host, ":", "-")+"_"+port+".token")
}
