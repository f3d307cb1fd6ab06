package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/testwait"
)

// stripped is a program as it is deployed, and what its build left: itself with
// symbols and lines, and its debug file alone.
type stripped struct {
	bare, full, debug string
	hot               profile.Location // its function hot
}

const hotSource = "int hot(int n) {\n\tint s = 0;\n\tfor (int i = 0; i < n; i++)\n\t\ts += i * i;\n\treturn s;\n}\nint main(void) { return hot(1000); }\n"

func strip(t *testing.T) stripped {
	t.Helper()
	dir := t.TempDir()
	p := stripped{bare: filepath.Join(dir, "shop"), full: filepath.Join(dir, "shop.full"), debug: filepath.Join(dir, "shop.debug")}
	source := filepath.Join(dir, "hot.c")
	if err := os.WriteFile(source, []byte(hotSource), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"gcc", "-g", "-O1", "-fno-inline", "-Wl,--build-id", "-o", p.full, source},
		{"objcopy", "--only-keep-debug", p.full, p.debug},
		{"objcopy", "--strip-all", p.full, p.bare},
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", line, err, out)
		}
	}
	f, err := binfile.Open(p.full)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.ELF.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == "hot" {
			offset, _ := f.Offset(s.Value)
			p.hot = profile.Location{Kind: profile.KindNative, BuildID: f.BuildID(), Offset: offset}
		}
	}
	if p.hot.Offset == 0 {
		t.Fatal("there is no function hot")
	}
	return p
}

// named is a server to which windows of a stripped program were shipped.
type named struct {
	*httptest.Server
	server *Server
	store  *mem.Store
	as     func(token string) *http.Client
}

func shipStripped(t *testing.T, p stripped, debug Debug) *named {
	t.Helper()
	n := &named{store: mem.New(1)}
	admission, as := admitted(t)
	var err error
	if n.server, err = New(Options{Store: n.store, Admission: admission, Debug: debug}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.server.Close)
	n.Server = httptest.NewServer(n.server.Handler())
	t.Cleanup(n.Server.Close)
	n.as = func(token string) *http.Client { return as(n.Server, token) }
	b := profile.NewBuilder(profile.Head{Task: "task", Start: time.Now().Add(-time.Minute), Duration: time.Second, Target: profile.Labels{"service": "shop"},
		Types: []profile.ValueType{profile.CPUTime(1)}})
	leaf := b.Location(p.hot, profile.Unnamed(profile.KindNative, "/usr/bin/shop", p.hot.Offset))
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndComplete), N: 7, Values: []int64{7}, Squares: []float64{7}})
	w := b.Window()
	w.AddLoss(profile.Loss{Reason: profile.LossUnsymbolized, Detail: "no name for code of shop", N: 7, Value: 7})
	for _, tenant := range []string{"default", "other"} {
		batch := wire.NewBatch(func(profile.Hash) bool { return false })
		if err := batch.Add(wire.Seal(w, profile.Run{1})); err != nil {
			t.Fatal(err)
		}
		if _, err := atysv1connect.NewIntakeClient(n.as(tenant+"/agent"), n.URL).Push(t.Context(), batch.Request()); err != nil {
			t.Fatal(err)
		}
	}
	n.store.Settle()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		n.server.Names.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return n
}

// upload sends a file.
func (n *named) upload(t *testing.T, token, path string) (status int, answer string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	response, err := n.as(token).Post(n.URL+DebugPath, "application/octet-stream", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, text.String()
}

// leaf is how the window's only leaf is called now, and how many samples have no name.
func (n *named) leaf(t *testing.T, tenant string) (profile.Frame, int64) {
	t.Helper()
	asker := query.Asker{Store: n.store, Tenant: tenant}
	g, coverage, err := asker.Merge(t.Context(), query.Selection{Kinds: []string{"cpu"}, From: time.Now().Add(-time.Hour), To: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	h := profile.Head{Losses: coverage.Losses}
	return g.Forest.Places[g.Forest.Calls[g.Leaves[0].Call].Place].Names[0], h.LossOf(profile.LossUnsymbolized).N
}

// becomes waits until the leaf is named hot, with its file and line.
func (n *named) becomes(t *testing.T, tenant string) {
	t.Helper()
	var f profile.Frame
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(20 * time.Millisecond) {
		var without int64
		if f, without = n.leaf(t, tenant); f.Function == "hot" {
			if filepath.Base(f.File) != "hot.c" || f.Line < 1 || f.Line > 3 || f.Mapping != "/usr/bin/shop" || without != 0 {
				t.Errorf("it is %+v, and %d samples have no name", f, without)
			}
			return
		}
	}
	t.Fatalf("it is still called %q", f.Function)
}

// TestNamesAreUploaded ships windows of a stripped program, then sends what names
// it: the windows that are there already are named, those of another tenant not.
func TestNamesAreUploaded(t *testing.T) {
	p := strip(t)
	for name, files := range map[string][]string{"with symbols": {p.full}, "stripped, then its debug file": {p.bare, p.debug}, "the debug file first": {p.debug, p.bare}} {
		t.Run(name, func(t *testing.T) {
			n := shipStripped(t, p, Debug{Dir: t.TempDir()})
			if f, without := n.leaf(t, "default"); !f.IsUnnamed() || without != 7 {
				t.Fatalf("before, it is called %q, and %d samples have no name", f.Function, without)
			}
			for _, file := range files {
				if status, answer := n.upload(t, "default/agent", file); status != http.StatusOK || !strings.Contains(answer, p.hot.BuildID) {
					t.Fatalf("%s: %d, %s", file, status, answer)
				}
			}
			n.becomes(t, "default")
			if f, _ := n.leaf(t, "other"); !f.IsUnnamed() {
				t.Errorf("another tenant's file named it %q", f.Function)
			}
		})
	}
}

// TestSlowUpload sends a file over a line that pauses for longer than a body may
// that nobody wants.
func TestSlowUpload(t *testing.T) {
	p := strip(t)
	n := shipStripped(t, p, Debug{Dir: t.TempDir()})
	content, err := os.ReadFile(p.full)
	if err != nil {
		t.Fatal(err)
	}
	body, line := io.Pipe()
	go func() {
		for _, part := range [][]byte{content[:100], content[100:]} {
			time.Sleep(5500 * time.Millisecond)
			if _, err := line.Write(part); err != nil {
				return // the answer tells why
			}
		}
		line.Close()
	}()
	answer, err := n.as("default/agent").Post(n.URL+DebugPath, "application/octet-stream", body)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", answer.Status, text)
	}
}

// TestNamesAreAskedFor has a debuginfod know the executable and its debug file.
func TestNamesAreAskedFor(t *testing.T) {
	p := strip(t)
	known := map[string]string{"/buildid/" + p.hot.BuildID + "/executable": p.bare, "/buildid/" + p.hot.BuildID + "/debuginfo": p.debug}
	debuginfod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known[r.URL.Path] == "" {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, known[r.URL.Path])
	}))
	t.Cleanup(debuginfod.Close)
	n := shipStripped(t, p, Debug{Dir: t.TempDir(), Servers: []string{debuginfod.URL}})
	n.becomes(t, "default")
}

// TestDebuginfodThatHangs has files be taken, and name what they do, for all
// tenants, while a server that was asked for them does not answer.
func TestDebuginfodThatHangs(t *testing.T) {
	p := strip(t)
	asked, answer := make(chan string, 100), make(chan bool)
	debuginfod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(debuginfod.Close)
	t.Cleanup(func() { close(answer) })
	n := shipStripped(t, p, Debug{Dir: t.TempDir(), Servers: []string{debuginfod.URL}})
	for range 2 { // one of each tenant
		if path := <-asked; path != "/buildid/"+p.hot.BuildID+"/executable" {
			t.Errorf("asked for %s", path)
		}
	}
	for tenant, files := range map[string][]string{"default": {p.full}, "other": {p.debug, p.bare}} {
		for _, file := range files {
			if status, said := n.upload(t, tenant+"/agent", file); status != http.StatusOK {
				t.Fatalf("%s: %d, %s", file, status, said)
			}
		}
		n.becomes(t, tenant)
	}
}

// TestBadDebugFiles refuses what names nothing, what is too much, and who may not.
func TestBadDebugFiles(t *testing.T) {
	p := strip(t)
	n := shipStripped(t, p, Debug{Dir: t.TempDir(), Bytes: 100_000})
	dir := t.TempDir()
	garbage, large, anonymous := filepath.Join(dir, "garbage"), filepath.Join(dir, "large"), filepath.Join(dir, "anonymous")
	for path, content := range map[string][]byte{garbage: []byte("\x7fELF, or so it says"), large: make([]byte, 200_000)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("objcopy", "--remove-section=.note.gnu.build-id", p.bare, anonymous).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, test := range []struct {
		token, file string
		status      int
	}{
		{"default/agent", garbage, http.StatusBadRequest},
		{"default/agent", large, http.StatusInsufficientStorage},
		{"default/agent", anonymous, http.StatusBadRequest},
		{"default/reader", p.full, http.StatusForbidden},
		{"default/operator", p.full, http.StatusOK},
	} {
		if status, answer := n.upload(t, test.token, test.file); status != test.status {
			t.Errorf("%s sends %s: %d %s, want %d", test.token, filepath.Base(test.file), status, strings.TrimSpace(answer), test.status)
		} else if strings.Contains(answer, dir) || strings.Contains(answer, "/tmp") {
			t.Errorf("the answer tells of paths: %s", answer)
		}
	}
	left, err := filepath.Glob(filepath.Join(n.server.options.Debug.Dir, "default", ".upload-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v: left behind: %v", err, left)
	}
}
