package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/auth"
)

// What is said by the environment where no flag does.
const (
	serverVariable = "ATYS_SERVER"
	tokenVariable  = "ATYS_TOKEN"
	caVariable     = "ATYS_TLS_CA"
	certVariable   = "ATYS_TLS_CERT"
	keyVariable    = "ATYS_TLS_KEY"
)

// clientFlags says which server is asked, and as whom.
type clientFlags struct {
	server    string
	tokenFile string
	ca        string
	cert, key string
	plaintext bool
}

func (f *clientFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.server, "server", "", "address of the server, such as https://10.0.0.5:4300; without a scheme http on this machine, https elsewhere; else $"+serverVariable)
	flags.StringVar(&f.tokenFile, "token-file", "", "file that holds the token to ask with; else $"+tokenVariable+", else that of a server of yours on this machine")
	flags.StringVar(&f.ca, "tls-ca", "", "authority of the server's certificate, in PEM, if not one of the system's; else $"+caVariable)
	flags.StringVar(&f.cert, "tls-cert", "", "certificate to ask with; else $"+certVariable)
	flags.StringVar(&f.key, "tls-key", "", "its key; else $"+keyVariable)
	flags.BoolVar(&f.plaintext, "plaintext", false, "send a token to another machine without TLS: it can be read on the way")
	for _, name := range []string{"token-file", "tls-ca", "tls-cert", "tls-key"} {
		_ = c.MarkFlagFilename(name)
	}
}

// parse tells where the server is: what the flag says, else the environment,
// else this machine.
func (f *clientFlags) parse() (*url.URL, error) {
	address := withScheme(cmp.Or(f.server, os.Getenv(serverVariable), defaultListen))
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &usageError{fmt.Errorf("--server %q: want an address such as http://127.0.0.1:4300", address)}
	}
	return u, nil
}

// withScheme completes an address that names no scheme: http for this machine itself,
// https for all others. What is neither a host with a port, nor an address or a name
// with dots, is left as it is, to be refused.
func withScheme(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	u, err := url.Parse("//" + address)
	if err != nil {
		return address
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	switch {
	case host == "localhost", ip != nil && ip.IsLoopback():
		return "http://" + address
	case host != "" && (u.Port() != "" || ip != nil || strings.Contains(host, ".")):
		return "https://" + address
	}
	return address
}

// client asks the server. Answers to some questions have no end.
func (f *clientFlags) client() (*http.Client, string, error) {
	u, err := f.parse()
	if err != nil {
		return nil, "", err
	}
	token, err := f.token(u)
	if err != nil {
		return nil, "", err
	}
	config, err := auth.ClientTLS(cmp.Or(f.ca, os.Getenv(caVariable)), cmp.Or(f.cert, os.Getenv(certVariable)), cmp.Or(f.key, os.Getenv(keyVariable)), time.Now)
	if err != nil {
		return nil, "", &usageError{err}
	}
	var dialer net.Dialer
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: idleClientConnection, TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, exactly(address))
		}}
	return &http.Client{Transport: &auth.Bearer{Token: token, Scheme: u.Scheme, Host: u.Host, Next: transport}, CheckRedirect: stay},
		strings.TrimSuffix(u.String(), "/"), nil
}

// stay follows no redirect: no server of ours sends any, and one that is not may
// not choose what a client inside a network asks there.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// exactly is an address with the one that localhost means here: the system may
// try another one first, at which somebody else listens.
func exactly(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "localhost" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// token tells what is asked with: what is in the file, in the environment, or
// what a server of this user on this machine has left. Files are read for each
// request: an agent may be there before its server, and tokens change. Without
// one, reading may do.
func (f *clientFlags) token(u *url.URL) (func() (string, error), error) {
	local, err := isLocal(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "0")))
	if err != nil {
		return nil, err
	}
	beside := ""
	if local {
		beside = operatorBeside(u.Host)
	}
	now := func() (string, error) {
		switch {
		case f.tokenFile != "":
			token, err := auth.ReadSecret(f.tokenFile)
			if err != nil {
				return "", fmt.Errorf("--token-file: %w", err)
			}
			return token, nil
		case os.Getenv(tokenVariable) != "":
			return os.Getenv(tokenVariable), nil
		case beside != "":
			token, _ := auth.ReadHeldSecret(beside) // another user's, or of a server that is gone, or none
			return token, nil
		}
		return "", nil
	}
	token, err := now()
	if token != "" && u.Scheme == "http" && !local && !f.plaintext {
		err = &usageError{fmt.Errorf("%s: a token would cross the network for all to read: ask by https, or say --plaintext", u)}
	}
	return now, err
}

// explain has an error of a server say what can be done about it.
func explain(address string, err error) error {
	var answer *connect.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Code() {
	case connect.CodeUnavailable:
		if strings.Contains(answer.Message(), "server gave HTTP response to HTTPS client") {
			return fmt.Errorf("%s does not speak TLS: use http://%s", address, strings.TrimPrefix(address, "https://"))
		}
		return fmt.Errorf("%s does not answer: %s (\"atys up\" starts a server; --server or $%s names another)", address, answer.Message(), serverVariable)
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeResourceExhausted:
		return errors.New(answer.Message())
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return fmt.Errorf("%s refuses: %s (--token-file or $%s says who you are; a server that you run yourself has its token in %s of its data directory)",
			address, answer.Message(), tokenVariable, operatorFile)
	case connect.CodeUnimplemented:
		return fmt.Errorf("%s is no server of atys, or one of another version: %s", address, answer.Message())
	}
	return fmt.Errorf("%s: %w", address, err)
}
