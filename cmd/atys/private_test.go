package main

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/wire/atysv1"
)

// listening is somebody who notes the tokens that are shown.
func listening(t *testing.T, address string) (at string, shown *[]string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err)
	}
	shown = &[]string{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { *shown = append(*shown, r.Header.Get("Authorization")) }))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().String(), shown
}

// askAt asks an address as commands do.
func askAt(t *testing.T, address string) {
	t.Helper()
	f := clientFlags{server: address}
	c, at, err := f.client()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}

// runtimeDir is where the tokens of servers lie that run.
func runtimeDir(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return // it is /run, where each port has its own file
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
}

// TestLocalhostIsOneAddress has nobody at this machine's other address be shown
// the token of who listens at the first.
func TestLocalhostIsOneAddress(t *testing.T) {
	runtimeDir(t)
	ours, shown := listening(t, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(ours)
	if err != nil {
		t.Fatal(err)
	}
	_, stolen := listening(t, "[::1]:"+port)
	leave, err := auth.HoldSecret(operatorBeside(ours), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if got := exactly("localhost:" + port); got != ours { // the system may have one address of that name alone
		t.Errorf("localhost is %s", got)
	}
	askAt(t, "http://localhost:"+port)
	if len(*stolen) != 0 || len(*shown) != 1 || (*shown)[0] != "Bearer secret" {
		t.Errorf("shown to the server %q, to a stranger %q", *shown, *stolen)
	}
}

// TestTokenOfTheDead shows nobody the token that a killed server has left.
func TestTokenOfTheDead(t *testing.T) {
	runtimeDir(t)
	at, shown := listening(t, "127.0.0.1:0")
	beside := operatorBeside(at)
	if err := auth.WriteSecret(beside, "secret"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(beside) })
	askAt(t, "http://"+at)
	if len(*shown) != 1 || (*shown)[0] != "" {
		t.Errorf("shown is %q", *shown)
	}
}

// TestNoRedirects has no server choose what else a client asks.
func TestNoRedirects(t *testing.T) {
	asked := 0
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer inner.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		outer := httptest.NewServer(http.RedirectHandler(inner.URL, status))
		f := clientFlags{server: outer.URL}
		c, at, err := f.client()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.New(c, at).Report(t.Context(), &atysv1.ReportRequest{Node: "n"}); err == nil || asked != 0 {
			t.Errorf("%d: %d requests elsewhere, %v", status, asked, err)
		}
		outer.Close()
	}
}

// TestDataIsPrivate leaves nothing of a server's data to other users, also of a
// store that was there.
func TestDataIsPrivate(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	data := filepath.Join(t.TempDir(), "data")
	f := serverFlags{retention: upkeep.DefaultRetention, data: data, listenFlags: listenFlags{listen: "127.0.0.1:0", rate: 10}}
	for range 2 {
		h, err := f.build(logger(false), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if bad := readable(t, data); len(bad) > 0 {
			t.Errorf("others may look into %q", bad)
		}
		if err := os.Chmod(data, 0o755); err != nil { // as services' directories are made
			t.Fatal(err)
		}
		if err := os.Chmod(storeIn(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// readable lists what other users can read in a directory of ours.
func readable(t *testing.T, data string) (paths []string) {
	t.Helper()
	if err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == data {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case info.Mode().Perm()&0o077 != 0:
			paths = append(paths, path)
		case d.IsDir():
			return filepath.SkipDir // nobody else comes further
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestMetricsAreLimited has an agent's metrics be asked for no more often than is said.
func TestMetricsAreLimited(t *testing.T) {
	end, at, err := serveMetrics(listenFlags{listen: "127.0.0.1:0", rate: 0.1}, "default", newRegistry(), logger(false))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		answer, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("request %d: %s", i, answer.Status)
		}
	}
}

// TestMetricsOfOneTenant answers readers of the agent's tenant, of a file of many.
func TestMetricsOfOneTenant(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	of := map[string]string{}
	for _, tenant := range []string{"default", "team-a"} {
		of[tenant] = auth.NewToken()
		line, err := auth.Line(of[tenant], auth.Identity{Tenant: tenant, Role: auth.Reader})
		if err != nil {
			t.Fatal(err)
		}
		if err := addLine(tokens, strings.TrimSuffix(line, "\n")); err != nil { // as an editor may leave it
			t.Fatal(err)
		}
	}
	end, at, err := serveMetrics(listenFlags{listen: "127.0.0.1:0", tokens: tokens}, "team-a", newRegistry(), logger(false))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for tenant, want := range map[string]int{"default": http.StatusForbidden, "team-a": http.StatusOK} {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+at+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+of[tenant])
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("a reader of %s: %s", tenant, answer.Status)
		}
	}
}
