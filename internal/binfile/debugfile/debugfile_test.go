package debugfile

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/binfile"
)

// stripped makes a program without symbols and its debug file.
func stripped(t *testing.T) (program *binfile.File, debug []byte) {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command("sh", "-ec", `echo 'int main() { return 0; }' | gcc -g -x c -o whole -
		objcopy --only-keep-debug whole debug; objcopy --strip-all whole program`)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Skipf("%v\n%s", err, out)
	}
	program, err := binfile.Open(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	if debug, err = os.ReadFile(filepath.Join(dir, "debug")); err != nil {
		t.Fatal(err)
	}
	return program, debug
}

func TestServers(t *testing.T) {
	program, debug := stripped(t)
	_, other := stripped(t)
	other = bytes.Replace(other, []byte("GNU\x00"), []byte("GNO\x00"), -1) // another build-id
	for _, tc := range []struct {
		name  string
		serve func(w http.ResponseWriter)
		found bool
		err   string
		asked int // by three attempts, the last one a day later
	}{
		{"has it", func(w http.ResponseWriter) { w.Write(debug) }, true, "", 1},
		{"has it not", func(w http.ResponseWriter) { w.WriteHeader(404) }, false, "no debug file", 2},
		{"is broken", func(w http.ResponseWriter) { w.WriteHeader(500) }, false, "500", 2},
		{"lies", func(w http.ResponseWriter) { w.Write(other) }, false, "another build-id", 2},
		{"sends nonsense", func(w http.ResponseWriter) { w.Write([]byte("<html>")) }, false, "another build-id", 2},
		{"breaks off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000000")
			w.Write(debug[:100])
		}, false, "EOF", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				asked++
				tc.serve(w)
			}))
			defer server.Close()
			now := time.Now()
			f := &Finder{Dirs: []string{t.TempDir()}, Servers: []string{server.URL}, CacheDir: t.TempDir(),
				Now: func() time.Time { return now }}
			for i := range 3 {
				if i == 2 {
					now = now.Add(25 * time.Hour)
				}
				d, err := f.Find(context.Background(), program, "")
				if tc.found {
					if err != nil {
						t.Fatal(err)
					}
					d.Close()
				} else if err == nil || i == 0 && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
			}
			if asked != tc.asked {
				t.Errorf("the server was asked %d times, want %d", asked, tc.asked)
			}
			entries, _ := os.ReadDir(f.CacheDir)
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), ".") {
					t.Errorf("%q is left over", e.Name())
				}
			}
		})
	}
}

func TestSecondServerIsAsked(t *testing.T) {
	program, debug := stripped(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { w.Write(debug) }))
	defer server.Close()
	f := &Finder{Dirs: []string{}, Servers: []string{"ftp://nowhere", "http://127.0.0.1:1", server.URL}}
	d, err := f.Find(context.Background(), program, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.BuildID() != program.BuildID() {
		t.Errorf("build-id %q", d.BuildID())
	}
}

func TestNoServerIsAskedUnlessGiven(t *testing.T) {
	program, _ := stripped(t)
	f := &Finder{Dirs: []string{t.TempDir()}, Client: &http.Client{Transport: noTransport{}}}
	if _, err := f.Find(context.Background(), program, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if _, err := f.FindAlt(context.Background(), program, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

type noTransport struct{}

func (noTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	panic("asked " + q.URL.String())
}

func TestBuildIDsThatAreNoNames(t *testing.T) {
	f := &Finder{Dirs: []string{"/"}}
	for _, id := range []string{"", "ab", "../../etc", "txt-0123456789", "0123456789abcdef/../x"} {
		if path := f.Local(id); path != "" {
			t.Errorf("%q is at %q", id, path)
		}
	}
}
