package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Subject tells whom a client's certificate stands for: its subject's O is the
// tenant, OU the role, CN the name, as in
//
//	openssl req -subj "/O=default/OU=agent/CN=web-7" ...
//
// Whether it is to be trusted, TLS has found out before.
func Subject(c *x509.Certificate) (who Identity, err error) {
	s := c.Subject
	if len(s.Organization) != 1 || len(s.OrganizationalUnit) != 1 {
		return who, fmt.Errorf("the certificate of %.100q tells no tenant and role: want one O and one OU in its subject", s.CommonName)
	}
	who = Identity{Tenant: s.Organization[0], Name: s.CommonName}
	if err := CheckTenant(who.Tenant); err != nil {
		return who, err
	}
	who.Role, err = ParseRole(s.OrganizationalUnit[0])
	return who, err
}

// pair is a certificate and its key in files, read again when they change.
type pair struct {
	cert, key string
	now       func() time.Time

	mu     sync.Mutex // guards all below
	loaded *tls.Certificate
	state  [2]fileState
	looked time.Time
}

// get gives the certificate as its files hold it now; as it was, where they are
// just being written.
func (p *pair) get() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.loaded != nil && now.Sub(p.looked) < lookAgain && !now.Before(p.looked) {
		return p.loaded, nil
	}
	p.looked = now
	var state [2]fileState
	for i, name := range []string{p.cert, p.key} {
		if info, err := os.Stat(name); err == nil {
			state[i] = stateOf(info)
		}
	}
	if p.loaded != nil && state == p.state {
		return p.loaded, nil
	}
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil && p.loaded == nil {
		return nil, fmt.Errorf("read the certificate %q and its key %q: %w", p.cert, p.key, err)
	}
	if err == nil {
		p.loaded, p.state = &c, state
	}
	return p.loaded, nil
}

// ServerTLS makes what a server needs for TLS, of files: its certificate and
// key, and, unless it is "", the authorities whose clients' certificates count.
func ServerTLS(cert, key, clientCA string, now func() time.Time) (*tls.Config, error) {
	p := &pair{cert: cert, key: key, now: now}
	if _, err := p.get(); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.get() }}
	if clientCA == "" {
		return c, nil
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.SessionTicketsDisabled = true // a session that goes on would ask no authority again
	a := &trusted{path: clientCA, now: now, config: c}
	if _, err := a.get(nil); err != nil {
		return nil, err
	}
	c = c.Clone()
	c.GetConfigForClient = a.get
	return c, nil
}

// trusted is a server's configuration with the authorities of a file, which is
// read again when it changes.
type trusted struct {
	path string
	now  func() time.Time

	mu     sync.Mutex // guards all below
	config *tls.Config
	state  fileState
	looked time.Time
}

// get gives the configuration as the file says now; as it said, where it is just
// being written.
func (a *trusted) get(*tls.ClientHelloInfo) (*tls.Config, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, loaded := a.now(), a.config.ClientCAs != nil
	if loaded && now.Sub(a.looked) < lookAgain && !now.Before(a.looked) {
		return a.config, nil
	}
	a.looked = now
	var state fileState
	if info, err := os.Stat(a.path); err == nil {
		state = stateOf(info)
	}
	if loaded && state == a.state {
		return a.config, nil
	}
	pool, err := authorities(a.path)
	if err != nil && !loaded {
		return nil, err
	}
	if err == nil {
		a.config, a.state = a.config.Clone(), state
		a.config.ClientCAs = pool
	}
	return a.config, nil
}

// ClientTLS makes what a client needs, of files: the authority of the server's
// certificate, "": those of the system, and its own certificate and key, if it
// has one.
func ClientTLS(ca, cert, key string, now func() time.Time) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pool, err := authorities(ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("a certificate and its key go together: name both files")
	}
	if cert != "" {
		p := &pair{cert: cert, key: key, now: now}
		if _, err := p.get(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.get() }
	}
	return c, nil
}

func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the authorities in %q: %w", path, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%q holds no certificate in PEM", path)
	}
	return pool, nil
}
