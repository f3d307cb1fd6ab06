package render

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"atys.dev/atys/internal/profile"
)

func hostileNames() []string {
	return []string{
		`</script><script>window.pwned=1</script>`, `<img src=x onerror="window.pwned=1">`, `</title></style><b class=x>`, `"'><svg onload=window.pwned=1>`,
		"\x1b]0;owned\x07\x1b[2J\x1b[31mred", "evil\u202egnp.exe", "zero\u200bwidth\ufeff", "nul\x00byte\r\nnewline\ttab", "bad\xff\xfeutf8", "\u2028line\u2029",
		"{{data}}{{script}}", "]]>", "--><!--", strings.Repeat("long_", 4000), "", "日本語の関数", "e\u0301", "\U000e0041tag",
	}
}

func hostileTree(t testing.TB) *profile.Tree {
	b := profile.NewBuilder(testHead(100))
	head := b.Head()
	head.Target = profile.Labels{hostileNames()[1]: hostileNames()[4]}
	head.Comments = hostileNames()
	head.Design = profile.Design(hostileNames()[0])
	head.Exact.Source = hostileNames()[3]
	head.Types[0].Unit, head.Types[0].Kind = hostileNames()[1], hostileNames()[4]
	for _, name := range hostileNames() {
		head.Losses = append(head.Losses, profile.Loss{Reason: profile.LossReason(name), Detail: name, N: 5})
		thread := b.Thread(profile.Thread{PID: 1, TID: 1, Process: name, Name: name})
		l := b.Named(profile.Frame{Function: name, File: name, Mapping: name, Linkage: name, Line: -7, StartLine: -7, Kind: 250, Class: 250})
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{l, l}, profile.EndCorrupt), Thread: thread, N: 10, Values: []int64{10}, Squares: []float64{10}})
	}
	return treeOf(t, profile.TreeOptions{Process: true, Thread: true}, b.Window())
}

// renderings lists all there are, by name.
func renderings() map[string]func(io.Writer, *profile.Tree, Options) error {
	return map[string]func(io.Writer, *profile.Tree, Options) error{
		"html": HTML, "svg": SVG, "terminal": Terminal, "json": TopJSON,
	}
}

func TestHostileNames(t *testing.T) {
	tree := hostileTree(t)
	for name, render := range renderings() {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := render(&out, tree, Options{Title: hostileNames()[0] + "\x1b[1m", NoColor: true, Lead: 2}); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if !utf8.ValidString(text) {
				t.Error("not UTF-8")
			}
			for i, r := range text {
				if r != '\n' && !unicode.IsPrint(r) && !(name == "json" && r > 0x80) {
					t.Fatalf("raw %U at %d", r, i)
				}
			}
		})
	}
}

func TestHostileSVGIsWellFormed(t *testing.T) {
	var out bytes.Buffer
	if err := SVG(&out, hostileTree(t), Options{Title: hostileNames()[0]}); err != nil {
		t.Fatal(err)
	}
	elements := map[string]bool{"svg": true, "title": true, "style": true, "rect": true, "text": true}
	decoder := xml.NewDecoder(&out)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && !elements[start.Name.Local] {
			t.Errorf("foreign element %q", start.Name.Local)
		}
	}
}

func TestHostileJSONIsValid(t *testing.T) {
	var out bytes.Buffer
	if err := TopJSON(&out, hostileTree(t), Options{Lead: 2}); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out.Bytes()) {
		t.Error("not JSON")
	}
}

func TestPageHoldsOneScript(t *testing.T) {
	var out bytes.Buffer
	if err := HTML(&out, hostileTree(t), Options{Title: hostileNames()[0]}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"<script": 2, "</script>": 2, "<style>": 1, "</style>": 1, "{{": 0, "http://": 1, "https://": 0} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q appears %d times, want %d", text, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	tests := map[string]string{
		"main":                "main",
		"std::vector<int>":    "std::vector<int>",
		"\x1b[31mred":         `\x1b[31mred`,
		"a\nb\tc\x7f":         `a\x0ab\x09c\x7f`,
		"evil\u202egnp":       `evil\u202egnp`,
		"bad\xffutf8\xc3":     `bad\xffutf8\xc3`,
		"\ufffdkept":          "\ufffdkept",
		"日本":                  "日本",
		"nbsp\u00a0":          `nbsp\u00a0`,
		"tag\U000e0041":       `tag\U000e0041`,
		"c1\u009b31m":         `c1\u009b31m`,
		"combining e\u0301 x": "combining e\u0301 x",
	}
	for in, want := range tests {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, name := range hostileNames() {
		f.Add(name, 12)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		out := Printable(s)
		if !utf8.ValidString(out) || strings.IndexFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Fatalf("Printable(%q) = %q", s, out)
		}
		if again := Printable(out); again != out {
			t.Fatalf("Printable(%q) = %q: not stable", out, again)
		}
		width %= 500
		if cut := Fit(out, width); cells(cut) > max(width, 0) {
			t.Fatalf("Fit(%q, %d) = %q takes %d cells", out, width, cut, cells(cut))
		}
		if width >= 0 && cells(Pad(out, width)) != width {
			t.Fatalf("Pad(%q, %d) takes %d cells", out, width, cells(Pad(out, width)))
		}
	})
}
