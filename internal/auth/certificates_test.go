package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates into files of a directory.
type authority struct {
	dir  string
	name string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), name: name}
	a.issue(t, "ca", pkix.Name{CommonName: name}, true)
	return a
}

// issue writes NAME.pem and NAME.key.
func (a *authority) issue(t *testing.T, file string, subject pkix.Name, isCA bool) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: isCA, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	parent, signer := a.cert, a.key
	if isCA {
		template.KeyUsage, parent, signer = x509.KeyUsageCertSign, template, secret
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &secret.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if isCA {
		a.key = secret
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, file+".pem"), filepath.Join(a.dir, file+".key")
	if err := errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func subject(tenant, role, name string) pkix.Name {
	return pkix.Name{Organization: []string{tenant}, OrganizationalUnit: []string{role}, CommonName: name}
}

// serveTLS tells agents who they are.
func serveTLS(t *testing.T, config *tls.Config) (url string) {
	t.Helper()
	h := httptest.NewUnstartedServer(gated(t).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := From(r.Context())
		_, _ = io.WriteString(w, who.Tenant+" "+who.Name)
	})))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.Listener = tls.NewListener(h.Listener, config)
	h.Start()
	t.Cleanup(h.Close)
	return "https://" + h.Listener.Addr().String()
}

// askTLS asks with a certificate of an authority; nil: without one.
func askTLS(t *testing.T, url string, server, a *authority, file string) (status int, body string, peer *x509.Certificate, err error) {
	t.Helper()
	var cert, key string
	if a != nil {
		cert, key = filepath.Join(a.dir, file+".pem"), filepath.Join(a.dir, file+".key")
	}
	config, err := ClientTLS(filepath.Join(server.dir, "ca.pem"), cert, key, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return 0, "", nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), answer.TLS.PeerCertificates[0], err
}

// TestCertificates has clients be known by their certificates, over TLS.
func TestCertificates(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	cert, key := ours.issue(t, "server", pkix.Name{CommonName: "server"}, false)
	now := time.Now()
	config, err := ServerTLS(cert, key, filepath.Join(ours.dir, "ca.pem"), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	url := serveTLS(t, config)
	ask := func(a *authority, file string) (status int, body string, peer *x509.Certificate, err error) {
		return askTLS(t, url, ours, a, file)
	}
	ours.issue(t, "web-7", subject("team-a", "agent", "web-7"), false)
	ours.issue(t, "reader", subject("team-a", "reader", "eve"), false)
	ours.issue(t, "nobody", pkix.Name{CommonName: "nobody"}, false)
	others.issue(t, "web-7", subject("team-a", "agent", "web-7"), false)
	for _, test := range []struct {
		of     *authority
		file   string
		status int // 0: not even a connection
		body   string
	}{
		{ours, "web-7", 200, "team-a web-7"},
		{ours, "reader", 403, ""},
		{ours, "nobody", 401, ""},
		{others, "web-7", 0, ""},
		{nil, "", 401, ""},
	} {
		status, body, _, err := ask(test.of, test.file)
		if status != test.status || (test.status == 0) != (err != nil) || test.body != "" && body != test.body {
			t.Errorf("%q: %d %q, %v; want %d %q", test.file, status, body, err, test.status, test.body)
		}
	}

	// A certificate that is renewed is used from then on.
	_, _, before, err := ask(ours, "web-7")
	if err != nil {
		t.Fatal(err)
	}
	ours.issue(t, "server", pkix.Name{CommonName: "renewed"}, false)
	now = now.Add(time.Minute)
	if err := errors.Join(os.Chtimes(cert, now, now), os.Chtimes(key, now, now)); err != nil {
		t.Fatal(err)
	}
	if _, _, after, err := ask(ours, "web-7"); err != nil || after.Subject.CommonName != "renewed" || before.Subject.CommonName != "server" {
		t.Errorf("%v: %q was %q before it was renewed", err, after.Subject.CommonName, before.Subject.CommonName)
	}
	if err := os.WriteFile(cert, []byte("half of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if _, _, after, err := ask(ours, "web-7"); err != nil || after.Subject.CommonName != "renewed" {
		t.Errorf("while its file is being written: %v", err)
	}
}

// TestAuthorityChanges follows the file of those whose clients' certificates count.
func TestAuthorityChanges(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	cert, key := ours.issue(t, "server", pkix.Name{CommonName: "server"}, false)
	now, trusts := time.Now(), filepath.Join(t.TempDir(), "clients.pem")
	trust := func(a *authority) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(a.dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if err := errors.Join(os.WriteFile(trusts, text, 0o600), os.Chtimes(trusts, now, now)); err != nil {
			t.Fatal(err)
		}
	}
	trust(ours)
	config, err := ServerTLS(cert, key, trusts, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	url := serveTLS(t, config)
	for _, a := range []*authority{ours, others} {
		a.issue(t, "web-7", subject("team-a", "agent", "web-7"), false)
	}
	for _, trusted := range []*authority{ours, others} {
		trust(trusted)
		for _, a := range []*authority{ours, others} {
			if status, body, _, err := askTLS(t, url, ours, a, "web-7"); (status == 200 && body == "team-a web-7") != (a == trusted) {
				t.Errorf("%s, while %s counts: %d %q, %v", a.name, trusted.name, status, body, err)
			}
		}
	}
	if err := os.WriteFile(trusts, []byte("half of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if status, _, _, err := askTLS(t, url, ours, others, "web-7"); status != 200 {
		t.Errorf("while the file is being written: %d, %v", status, err)
	}
}

func TestCertificatesRefused(t *testing.T) {
	a := newAuthority(t, "a")
	cert, key := a.issue(t, "server", pkix.Name{CommonName: "server"}, false)
	none := filepath.Join(t.TempDir(), "none")
	for name, try := range map[string]func() error{
		"no certificate": func() error { _, err := ServerTLS(none, key, "", time.Now); return err },
		"no authorities": func() error { _, err := ServerTLS(cert, key, none, time.Now); return err },
		"a key as CA":    func() error { _, err := ClientTLS(key, "", "", time.Now); return err },
		"half a pair":    func() error { _, err := ClientTLS("", cert, "", time.Now); return err },
		"no pair":        func() error { _, err := ClientTLS("", none, none, time.Now); return err },
	} {
		if err := try(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, s := range []pkix.Name{{CommonName: "x"}, subject("../x", "agent", "x"), subject("a", "boss", "x"),
		{Organization: []string{"a", "b"}, OrganizationalUnit: []string{"agent"}}} {
		if who, err := Subject(&x509.Certificate{Subject: s}); err == nil {
			t.Errorf("%v is %+v", s, who)
		}
	}
}
