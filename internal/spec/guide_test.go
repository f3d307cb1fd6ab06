package spec

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestGuide reads each profile that the guide shows.
func TestGuide(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
			if !strings.Contains(string(block[1]), "kind: "+kindProfile) {
				continue
			}
			all, err := Parse(strings.NewReader(string(block[1])))
			if err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block[1])
			}
			read += len(all)
		}
	}
	if read < 4 {
		t.Errorf("%d profiles in %d pages", read, len(pages))
	}
}
