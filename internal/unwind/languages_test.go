package unwind

import (
	"os"
	"regexp"
	"testing"
)

// TestLanguageNumbers compares the languages that walks know with enum language: each has its
// number, and a row in languages.
func TestLanguageNumbers(t *testing.T) {
	header, err := os.ReadFile("../bpf/include/tables.h")
	if err != nil {
		t.Fatal(err)
	}
	enum := regexp.MustCompile(`(?s)enum language \{(.*?)\}`).FindSubmatch(header)
	if enum == nil {
		t.Fatal("tables.h has no enum language")
	}
	numbers := map[string]Language{}
	for i, m := range regexp.MustCompile(`LANGUAGE_(\w+),`).FindAllSubmatch(enum[1], -1) {
		numbers[string(m[1])] = Language(i)
	}
	ours := map[string]Language{"NONE": 0, "PYTHON": Python, "JAVA": Java, "V8": V8, "RUBY": Ruby, "PHP": PHP, "PERL": Perl, "BEAM": BEAM, "DOTNET": DotNet}
	described := map[Language]bool{0: true}
	for _, l := range languages {
		described[l.language] = true
	}
	for name, number := range numbers {
		if got, ok := ours[name]; !ok || got != number || !described[number] {
			t.Errorf("LANGUAGE_%s is %d, here %d; described: %v", name, number, got, described[number])
		}
	}
	if len(numbers) != len(ours) || len(described) != len(ours) {
		t.Errorf("%d languages in tables.h, %d here, %d of them described", len(numbers), len(ours), len(described))
	}
}
