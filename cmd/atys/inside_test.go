package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/pprof"
	"atys.dev/atys/test/testwait"
)

// told gets an address as somebody who has a token, or none.
func told(t *testing.T, address, token string) (status int, body []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, body
}

// metricsAddress is where an agent answers Prometheus, as its server was told.
var metricsAddress = regexp.MustCompile(`"targets":\["([^"]+)"\]`)

// TestInside has each process show its operator, and nobody else, what it does,
// in a form that we read.
func TestInside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, listen, relayed, upAt := t.TempDir(), freeAddress(t), freeAddress(t), freeAddress(t)
	t.Setenv(serverVariable, "http://"+listen)
	runs(t, "server", "--data", filepath.Join(dir, "server"), "--listen", listen).says(t, "answers")
	runs(t, "relay", "--listen", relayed).says(t, "takes windows")
	runs(t, "agent", "--data", filepath.Join(dir, "agent"), "--node", "n", "--metrics", "127.0.0.1:0").says(t, "profiling n")
	runs(t, "up", "--data", filepath.Join(dir, "up"), "--listen", upAt).says(t, "shows it")
	becomes(t, "connected", "get", "agents")
	var metricsAt string
	for began := time.Now(); metricsAt == ""; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > testwait.Longest(t) {
			t.Fatal("the server does not tell of the agent")
		}
		if _, answer := told(t, "http://"+listen+"/sd/agents", ""); metricsAddress.Match(answer) {
			metricsAt = string(metricsAddress.FindSubmatch(answer)[1])
		}
	}
	for name, at := range map[string]string{"server": listen, "relay": relayed, "agent": metricsAt, "up": upAt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, err := auth.ReadHeldSecret(operatorBeside(at))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"", "heap", "goroutine?debug=2", "cmdline", "profile?seconds=1", "trace?seconds=1"} {
				for _, not := range []string{"", "guessed"} {
					if status, body := told(t, "http://"+at+auth.InsidePath+path, not); status != http.StatusUnauthorized && status != http.StatusForbidden {
						t.Errorf("%s with token %q: %d, %.100s", path, not, status, body)
					}
				}
			}
			for path, kind := range map[string]string{"heap": "alloc_space", "profile?seconds=1": "cpu", "goroutine": "goroutine"} {
				status, body := told(t, "http://"+at+auth.InsidePath+path, token)
				if status != http.StatusOK {
					t.Errorf("%s: %d, %.200s", path, status, body)
					continue
				}
				if w, err := pprof.Read(bytes.NewReader(body)); err != nil || !slices.ContainsFunc(w.Types, func(v profile.ValueType) bool { return v.Kind == kind }) {
					t.Errorf("%s: %v holds no %s", path, err, kind)
				}
			}
			if status, body := told(t, "http://"+at+auth.InsidePath+"cmdline", token); status != http.StatusOK || !strings.HasPrefix(string(body), "atys\x00"+name) {
				t.Errorf("cmdline: %d, %.100q", status, body)
			}
		})
	}
}

// TestProfilesItself finds atys among what atys profiles.
func TestProfilesItself(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	listen := freeAddress(t)
	t.Setenv(serverVariable, "http://"+listen)
	up := runs(t, "up", "--data", filepath.Join(t.TempDir(), "up"), "--listen", listen)
	up.says(t, "shows it")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	about := `{executable="` + filepath.Base(self) + `"}`
	becomes(t, "atys.dev/atys/", "query", "top", about, "--from", "-5m", "-n", "10000")
	if status := up.ends(t, syscall.SIGINT); status.ExitStatus() != 0 {
		t.Errorf("it ended with %v", status)
	}
}
