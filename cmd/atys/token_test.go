package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/server/upkeep"
)

// certificate writes one for 127.0.0.1 that is its own authority.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	made := s.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	if err := errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// TestFleetOverTLS has an agent and commands ask a server that knows tokens alone.
func TestFleetOverTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	tokens, file := filepath.Join(dir, "tokens"), func(role string) string { return filepath.Join(dir, role+".token") }
	for _, role := range []string{"agent", "reader"} {
		if printed, status := typed(t, "token", "--tokens", tokens, "--role", role, "--name", "of a test", "-o", file(role)); status != 0 || printed != "" {
			t.Fatalf("token: %d, %s", status, printed)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("profiling needs root")
	}
	f := serverFlags{retention: upkeep.DefaultRetention, data: filepath.Join(dir, "data"), listenFlags: listenFlags{listen: freeAddress(t), tokens: tokens, cert: cert, key: key, rate: 1000}}
	address := "https://" + f.listen
	t.Setenv(serverVariable, address)
	t.Setenv(caVariable, cert)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- up(ctx, f, budgetFlags{}, logger(false)) }()
	becomes(t, "connected", "get", "agents") // with the operator's token, which it finds
	go func() {
		ended <- runAgent(ctx, agentFlags{clientFlags: clientFlags{tokenFile: file("agent")}, data: filepath.Join(dir, "agent"), node: "other", spool: 10}, logger(false))
	}()
	becomes(t, "other", "get", "agents", "--token-file", file("reader"))

	profile := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(profile, []byte("kind: Profile\nname: p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		token string // "": what is found
		typed string
		want  string // "": it works
	}{
		{"", "apply -f " + profile, ""},
		{file("reader"), "query top --from -1m", ""},
		{file("reader"), "delete profile p", "your role is reader, and this needs operator"},
		{file("agent"), "query top --from -1m", "your role is agent, and this needs reader"},
		{filepath.Join(dir, "server.key"), "get profiles", "holds no token"},
		{filepath.Join(dir, "none"), "get profiles", "no such file"},
		{"", "get profiles --server http://" + f.listen, "400 Bad Request"},
		{"", "delete profile p", ""},
	} {
		args := strings.Fields(test.typed)
		if test.token != "" {
			args = append(args, "--token-file", test.token)
		}
		if printed, status := typed(t, args...); (status == 0) != (test.want == "") || !strings.Contains(printed, test.want) {
			t.Errorf("%q with %q: %d, %s", test.typed, test.token, status, printed)
		}
	}
	t.Setenv(tokenVariable, "guessed")
	if printed, status := typed(t, "get", "agents"); status == 0 || !strings.Contains(printed, "not known here") {
		t.Errorf("with a guess: %d, %s", status, printed)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestListen refuses to answer others without TLS, and half of what TLS takes.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	for _, test := range []struct {
		f    listenFlags
		want string // "": it listens
	}{
		{listenFlags{listen: "127.0.0.1:0"}, ""},
		{listenFlags{listen: "localhost:0"}, ""},
		{listenFlags{listen: ":0"}, "--tls-cert"},
		{listenFlags{listen: "0.0.0.0:0"}, "--tls-cert"},
		{listenFlags{listen: "0.0.0.0:0", plaintext: true}, ""},
		{listenFlags{listen: "0.0.0.0:0", cert: cert, key: key}, ""},
		{listenFlags{listen: "127.0.0.1:0", cert: cert}, "go together"},
		{listenFlags{listen: "127.0.0.1:0", clientCA: cert}, "need TLS"},
		{listenFlags{listen: "127.0.0.1:0", tokens: filepath.Join(dir, "none")}, "no such file"},
		{listenFlags{listen: "here"}, "an address and a port"},
		{listenFlags{listen: "127.0.0.1:0", rate: -5}, "--request-rate -5"},
		{listenFlags{listen: "127.0.0.1:0", rate: math.NaN()}, "--request-rate NaN"},
		{listenFlags{listen: "127.0.0.1:0", rate: math.Inf(1)}, "--request-rate +Inf"},
	} {
		d, err := test.f.open("--listen", logger(false))
		if err == nil {
			d.listener.Close()
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.f, err, test.want)
		}
		if alone := test.f.tokens == "" && test.f.clientCA == "" && !strings.HasPrefix(test.f.listen, "0"); err == nil && d.local != alone {
			t.Errorf("%+v: who asks need not say who they are: %v", test.f, d.local)
		}
	}
}

// TestTokenStaysHome sends no token to another machine for all to read.
func TestTokenStaysHome(t *testing.T) {
	t.Setenv(tokenVariable, "secret")
	for address, ok := range map[string]bool{"http://127.0.0.1:4300": true, "http://localhost:4300": true, "https://10.0.0.5:4300": true, "http://10.0.0.5:4300": false} {
		f := clientFlags{server: address}
		if _, _, err := f.client(); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
		f.plaintext = true
		if _, _, err := f.client(); err != nil {
			t.Errorf("%s, as I say: %v", address, err)
		}
	}
}
