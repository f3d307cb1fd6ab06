package server

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// chromium runs a page headless, in a window so wide, and gives the document it became.
func chromium(t *testing.T, address string, width int) string {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here; `make deps` installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--window-size="+strconv.Itoa(width)+",800", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=60000", "--dump-dom", address)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("run %q: %v\n%s", browser, err, stderr.Bytes())
	}
	return string(out)
}

// examined serves the pages of a server with a script at the end of the overview,
// which the policy allows beside the page's own.
func (r *running) examined(t *testing.T, script string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		inner := httptest.NewRecorder()
		r.Config.Handler.ServeHTTP(inner, asked)
		for name, values := range inner.Header() {
			w.Header()[name] = values
		}
		page := inner.Body.String()
		if asked.URL.Path == "/" {
			policy := w.Header().Get("Content-Security-Policy")
			w.Header().Set("Content-Security-Policy", strings.Replace(policy, "script-src ", "script-src '"+sourceOf(script)+"' ", 1))
			page = strings.Replace(page, "</body>", "<script>"+script+"</script></body>", 1)
		}
		w.WriteHeader(inner.Code)
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(s.Close)
	return s
}

// TestPageInABrowser looks at the overview from inside: nothing is cut, nothing
// scrolls that should not, the filter is in the address, and frames have classes.
func TestPageInABrowser(t *testing.T) {
	script, err := os.ReadFile("testdata/page_check.js")
	if err != nil {
		t.Fatal(err)
	}
	r := town(t)
	s := r.examined(t, string(script))
	for _, width := range []int{1440, 1024, 400} {
		t.Run(strconv.Itoa(width), func(t *testing.T) {
			page := chromium(t, s.URL+"/?service=shop&own=0", width)
			found := regexp.MustCompile(`(?s)<pre id="result">(.*?)</pre>`).FindStringSubmatch(page)
			if found == nil {
				t.Fatalf("the page was not examined:\n%.2000s", page)
			}
			var failures []string
			if err := json.Unmarshal([]byte(html.UnescapeString(found[1])), &failures); err != nil {
				t.Fatal(err)
			}
			for _, f := range failures {
				t.Error(f)
			}
		})
	}
}
