package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// expectation is what testdata/selftest.js compares a page with.
type expectation struct {
	Values        [][3]any                     `json:"values"`
	Shares        [][2]any                     `json:"shares"`
	Intervals     [][3]any                     `json:"intervals"`
	Changes       [][3]any                     `json:"changes"`
	Short         [][2]string                  `json:"short"`
	Colours       map[string]map[string]string `json:"colours"`
	ChangeColours [][3]any                     `json:"changeColours"`
	Nodes         int                          `json:"nodes"` // 0: sums are not compared
	Depth         int                          `json:"depth"`
	Samples       int64                        `json:"samples"`
	Value         int64                        `json:"value"`
	FunctionCount int                          `json:"functionCount"`
	Functions     []expectedFunction           `json:"functions"`
	Certainty     [][4]float64                 `json:"certainty"` // value, spread, lo, hi
	Search        struct {
		Text  string `json:"text"`
		Value int64  `json:"value"`
	} `json:"search"`
}

type expectedFunction struct {
	Key   string  `json:"key"`
	Self  int64   `json:"self"`
	Total int64   `json:"total"`
	N     int64   `json:"n"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

func expect() expectation {
	e := expectation{Colours: map[string]map[string]string{}}
	for _, v := range []float64{0, 1, 999, 1000, 1234, 99_949_000, 99_960_000, 1e9, 12_345_678_901, 1e15, -5e6} {
		for _, unit := range []string{"nanoseconds", "count", "bytes", "milliseconds", "widgets", ""} {
			e.Values = append(e.Values, [3]any{v, unit, Value(v, unit)})
		}
	}
	for _, f := range []float64{0, 1, 0.5, 0.09994, 0.0999, 0.0123, 0.00099, 0.0001, 0.000004, -0.25, -0.000001} {
		e.Shares = append(e.Shares, [2]any{f, Share(f)})
	}
	for _, i := range [][2]float64{{0, 0.004}, {0.101, 0.146}, {0.011, 0.052}} {
		e.Intervals = append(e.Intervals, [3]any{i[0], i[1], shareInterval(i[0], i[1])})
		e.Changes = append(e.Changes, [3]any{-i[0], i[1], changeInterval(-i[0], i[1])})
	}
	for _, name := range shortNames() {
		e.Short = append(e.Short, [2]string{name, shorten(name, func(string) bool { return false })})
	}
	for _, relative := range []float64{-1, -0.3, 0, 0.5, 1} {
		e.ChangeColours = append(e.ChangeColours, [3]any{relative, true, changeFill(relative, true, true)}, [3]any{relative, false, changeFill(relative, true, false)})
	}
	return e
}

// expectTree adds what only trees of harmless names are compared for.
func (e *expectation) expectTree(t *profile.Tree, o Options) {
	for _, by := range []ColorBy{ByKind, ByClass, ByPackage} {
		light, dark := map[string]string{}, map[string]string{}
		t.Walk(func(n *profile.Node, depth int) {
			if depth > o.Lead {
				f := n.Frame
				light[f.Function] = swatchOf(f, by, false).fill(shadeOf(f.Function), false, false)
				dark[f.Function] = swatchOf(f, by, false).fill(shadeOf(f.Function), false, true)
			}
		})
		e.Colours[string(by)], e.Colours[string(by)+"-dark"] = light, dark
	}
	t.Walk(func(n *profile.Node, depth int) {
		e.Nodes++
		e.Depth = max(e.Depth, depth+1)
	})
	whole := t.Root.Total[0]
	e.Samples, e.Value = whole.N, whole.Value
	c := newCertainty(t)
	functions := o.functions(t)
	e.FunctionCount = len(functions)
	for i, f := range functions {
		interval, _ := c.interval(0, f.Total[0])
		if i%7 == 0 {
			e.Functions = append(e.Functions, expectedFunction{Key: f.Frame.Function + "|" + f.Frame.Kind.String() + "|" + f.Frame.Mapping,
				Self: f.Self[0].Value, Total: f.Total[0].Value, N: f.Total[0].N, Lo: interval.Low, Hi: interval.High})
		}
		if f.Frame.Function == "ExecSort" {
			e.Search.Text, e.Search.Value = "^ExecSort$", f.Total[0].Value
		}
	}
	for _, p := range []float64{0, 1e-5, 1e-4, 0.0017, 0.03, 0.2, 0.5, 0.77, 0.995, 1} {
		for _, spread := range []float64{0.9, 1, 1.7, 5, 31} {
			part := profile.Sum{N: int64(math.Ceil(p * float64(whole.N))), Value: int64(p * float64(whole.Value)), Squares: spread * p * whole.Squares}
			if i, ok := c.interval(0, part); ok {
				e.Certainty = append(e.Certainty, [4]float64{float64(part.Value), spread, i.Low, i.High})
			}
		}
	}
}

func shortNames() []string {
	return []string{"main", "net/http.(*conn).serve", "github.com/example/gateway/router.(*Mux).ServeHTTP", "search::Indexer::AddDocument(search::Document const&)",
		"std::map<int, std::vector<long>>::find(int const&) const", "operator new(unsigned long)", "std::ostream& operator<< <char>(std::ostream&)",
		"java.util.HashMap.getNode", "<module>", "a/", "x::", "core::ops::function::FnOnce::call_once{{vtable.shim}}", "(anonymous namespace)::run()"}
}

// chromium runs a page headless and gives the document it became.
func chromium(t *testing.T, page string, arguments ...string) []byte {
	t.Helper()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no chromium here; `make deps` installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	arguments = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--window-size=1600,900", "--force-prefers-reduced-motion",
		"--user-data-dir=" + t.TempDir(), "--virtual-time-budget=60000"}, arguments...)
	command := exec.CommandContext(ctx, browser, append(arguments, "file://"+page)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("run %q: %v\n%s", browser, err, stderr.Bytes())
	}
	return out
}

var resultText = regexp.MustCompile(`<pre id="result">([A-Za-z0-9+/=]+)</pre>`)

// TestBrowser opens pages in chromium and checks them from inside.
func TestBrowser(t *testing.T) {
	apart := profile.TreeOptions{Process: true, Thread: true}
	window := realistic(1, 20_000, 18)
	tests := []struct {
		name string
		tree *profile.Tree
		o    Options
		sums bool
	}{
		{"100,000 nodes", large(t, 100_000), Options{Lead: 2}, true},
		{"without threads", treeOf(t, profile.TreeOptions{}, window), Options{}, true},
		{"comparison", treeOf(t, profile.TreeOptions{}, window, changed(window, 5)), Options{}, false},
		{"one thousand frames deep", deep(t, 1000), Options{Flame: true}, false},
		{"empty", treeOf(t, apart, profile.NewBuilder(testHead(0)).Window()), Options{}, false},
		{"one frame", deep(t, 1), Options{}, false},
		{"hostile", hostileTree(t), Options{Title: hostileNames()[0], Lead: 2}, false},
	}
	script, err := os.ReadFile("testdata/selftest.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := expect()
			if test.sums {
				e.expectTree(test.tree, test.o)
			}
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			page := filepath.Join(t.TempDir(), "page.html")
			file, err := os.Create(page)
			if err != nil {
				t.Fatal(err)
			}
			if err := writePage(file, test.tree, test.o, "testdata/selftest.js", fmt.Appendf(nil, "const expected = %s;\n%s", text, script)); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			readResult(t, chromium(t, page, "--dump-dom"))
		})
	}
}

func readResult(t *testing.T, document []byte) {
	t.Helper()
	match := resultText.FindSubmatch(document)
	if match == nil {
		t.Fatalf("the page did not finish its checks; it begins %.300q", document)
	}
	text, err := base64.StdEncoding.DecodeString(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Failures []string       `json:"failures"`
		Notes    map[string]any `json:"notes"`
	}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Failures {
		t.Error(f)
	}
	if len(result.Notes) > 0 {
		t.Logf("%v", result.Notes)
	}
}
