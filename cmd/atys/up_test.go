package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/test/testwait"
	"atys.dev/atys/test/vacant"
)

// freeAddress is one that nobody answers at.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := vacant.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// page waits until a page holds a text.
func page(t *testing.T, address, text string) {
	t.Helper()
	var last string
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(100 * time.Millisecond) {
		answer, err := http.Get(address)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = string(body); err == nil && strings.Contains(last, text) {
			return
		}
	}
	t.Fatalf("%s shows no %q: %.2000s", address, text, last)
}

// TestUp lets this program be profiled by itself, finds it on the page, and
// finds it there again after a new start.
func TestUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // something to see
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	service := ">" + filepath.Base(exe) + "</a>"
	f := serverFlags{retention: upkeep.DefaultRetention, data: t.TempDir(), listenFlags: listenFlags{listen: freeAddress(t)}}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- up(ctx, f, budgetFlags{}, logger(false)) }()
		page(t, "http://"+f.listen+"/?last=1h", service)
		page(t, "http://"+f.listen+"/flame?last=1h", "<title>")
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	waiting, err := filepath.Glob(filepath.Join(f.data, "spool", "*.bundle"))
	if err != nil || len(waiting) > 0 {
		t.Errorf("left in the spool: %q, %v", waiting, err)
	}
}

func TestUpRefuses(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:4300": "--tls-cert", "example.com:80": "--tls-cert", "4300": "an address and a port", "127.0.0.1:99999": "--listen takes another address",
	} {
		err := up(t.Context(), serverFlags{retention: upkeep.DefaultRetention, data: t.TempDir(), listenFlags: listenFlags{listen: listen}}, budgetFlags{}, logger(false))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--listen %s: %v, want %q in it", listen, err, want)
		}
	}
}
