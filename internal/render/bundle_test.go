package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestBundle runs a bundle, if a JavaScript engine is here: each module has a scope of
// its own, is run once, and after those it imports.
func TestBundle(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	modules := fstest.MapFS{
		"m/a.js": {Data: []byte("const secret = 1;\nexport const LIMIT = secret + 1;\nexport function twice(x) {\n  return secret * 2 * x;\n}\n")},
		"m/b.js": {Data: []byte("import { twice as doubled, LIMIT } from \"./a.js\";\nconst secret = 20;\nexport class Sum {\n  value = doubled(secret) + LIMIT;\n}\nexport async function later() {\n  return secret;\n}\n")},
	}
	entry := "import {\n  twice,\n} from \"../m/a.js\";\nimport { Sum, later } from \"../m/b.js\";\nconst secret = 100;\nlater().then((l) => console.log(new Sum().value + twice(secret) + l));\n"
	script, err := bundle(modules, "entry/main.js", []byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(script), "const $a = "); n != 1 {
		t.Errorf("a.js is there %d times:\n%s", n, script)
	}
	path := filepath.Join(t.TempDir(), "bundle.mjs")
	if err := os.WriteFile(path, script, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(node, path).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "262" {
		t.Errorf("%v, %q, want 262:\n%s", err, got, script)
	}
}

func TestBundleRefuses(t *testing.T) {
	for name, test := range map[string]struct{ entry, other, want string }{
		"circle":           {`import { b } from "./b.js";`, "import { a } from \"./a.js\";\nexport const b = 1;\n", "a.js -> b.js -> a.js"},
		"missing export":   {`import { c } from "./b.js";`, "export const b = 1;\n", `does not export`},
		"missing module":   {`import { c } from "./c.js";`, "", "c.js"},
		"default export":   {"export default 1;", "", "not understood"},
		"assigned export":  {"export let x = 1;", "", "not understood"},
		"package":          {`import { c } from "c";`, "", "not understood"},
		"import for works": {`import "./b.js";`, "", "not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			modules := fstest.MapFS{"a.js": {Data: []byte(test.entry + "\n")}, "b.js": {Data: []byte(test.other)}}
			if _, err := bundle(modules, "a.js", modules["a.js"].Data); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
