package spec

import (
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
)

func TestSelector(t *testing.T) {
	web := profile.Labels{"service": "checkout", "instance": "web-1", "k8s.pod.uid": "a\nb"}
	for text, want := range map[string]bool{
		``:                     true,
		`{}`:                   true,
		`{service="checkout"}`: true,
		` { service = "checkout" , instance=~"web-.*", }`: true,
		`{service="check"}`:          false,
		`{service=~"check"}`:         false, // patterns match the whole
		`{service!~"check"}`:         true,
		`{service!="checkout"}`:      false,
		`{zone=""}`:                  true, // what is missing is empty
		`{zone!=""}`:                 false,
		`{zone=~".+"}`:               false,
		`{k8s.pod.uid=~"a.b"}`:       true,
		`{service=~"cart|checkout"}`: true,
		"{service=`checkout`}":       true,
		`{service='checkout', k8s.pod.uid='a\nb', instance!='"w\'\xe4ö'}`: true,
		`{` + strings.Repeat(`service=~"\\pL{1,20}",`, 16) + `}`:          true,
		`{service=~"c(art|heck)out", instance!="web-1"}`:                  false,
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Matches(web); got != want {
			t.Errorf("%s matches: %v, want %v", text, got, want)
		}
	}
}

func TestSelectorRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`service="a"`:       "want {label=",
		`{service}`:         "want =, !=, =~ or !~",
		`{service="a"`:      `want "," or "}"`,
		`{service="a" "b"}`: `want "," or "}"`,
		`{="a"}`:            "name of a label",
		`{service='a}`:      "in quotes",
		`{service='\z'}`:    "invalid syntax",
		`{service=a}`:       "in quotes",
		`{service=~"("}`:    "missing closing",
		`{a=~"b)|(c"}`:      "unexpected )",
		`{service="a"} or`:  "nothing more",
		`{service=~"` + strings.Repeat("x", 2000) + `"}`:                "at most 1024",
		`{service=~"(?:` + strings.Repeat("x", 900) + `){1000}"}`:       "steps",
		`{service=~"(?:(?:` + strings.Repeat("x", 900) + `){10}){99}"}`: "steps",
		`{service=~"` + strings.Repeat(`\\pL`, 300) + `"}`:              "steps",
		`{` + strings.Repeat(`a="b",`, 17) + `}`:                        "more conditions than the 16",
	} {
		if s, err := ParseSelector(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, %v, want an error with %q", text, s, err, want)
		}
	}
}

// FuzzSelector reads what nobody meant as a selector: what is accepted reads the
// same once it is written.
func FuzzSelector(f *testing.F) {
	f.Add(`{service="checkout",instance=~"web-.*"}`)
	f.Add("{a!=`b`,c!~\"d\\n\"}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelector(text)
		if err != nil {
			return
		}
		again, err := ParseSelector(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is written %q, which reads as %q, %v", text, s, again, err)
		}
	})
}
