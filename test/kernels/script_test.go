package kernels

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseCommands(t *testing.T) {
	for _, tt := range []struct {
		line string
		want Command
	}{
		{"true", Command{Args: []string{"true"}}},
		{"  cat \t /proc/version ", Command{Args: []string{"cat", "/proc/version"}}},
		{"atys record -a -d 2s -o /tmp/a.folded", Command{Args: []string{"atys", "record", "-a", "-d", "2s", "-o", "/tmp/a.folded"}}},
		{"write f 'two words'", Command{Args: []string{"write", "f", "two words"}}},
		{"write f ''", Command{Args: []string{"write", "f", ""}}},
		{"write f 'it''s'", Command{Args: []string{"write", "f", "it's"}}},
		{"a b'c d'e", Command{Args: []string{"a", "bc de"}}},
		{"spin 5 &busy&", Command{Args: []string{"spin", "5"}, Name: "busy"}},
		{"grep foo$ &&", Command{Args: []string{"grep", "foo$", "&&"}}},
	} {
		got, err := ParseCommands([]string{tt.line})
		if err != nil {
			t.Errorf("%q: %v", tt.line, err)
		} else if !reflect.DeepEqual(got[0], tt.want) {
			t.Errorf("%q: got %q, want %q", tt.line, got[0], tt.want)
		}
	}
}

func TestParseCommandsRefuses(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{[]string{""}, "no program"},
		{[]string{"''"}, "no program"},
		{[]string{"&a&"}, "no program"},
		{[]string{"cat 'x"}, "open quote"},
		{[]string{"cat\nls"}, "line end at byte 3"},
		{[]string{"a &x&", "b &x&"}, "taken by an earlier"},
	} {
		_, err := ParseCommands(tt.lines)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one with %q", tt.lines, err, tt.want)
		}
	}
}

func TestPIDOf(t *testing.T) {
	commands, err := ParseCommands([]string{"spin 5 &a&", "x $a", "spin 5 &b&", "y $b"})
	if err != nil {
		t.Fatal(err)
	}
	s := Script{Commands: commands}
	for _, tt := range []struct {
		command   int
		arg, want string
	}{
		{1, "$a", "a"},
		{1, "a", ""},
		{1, "$", ""},
		{1, "$b", ""}, // starts later
		{3, "$b", "b"},
		{0, "$a", ""}, // itself
	} {
		if got := s.PIDOf(tt.command, tt.arg); got != tt.want {
			t.Errorf("PIDOf(%d, %q) = %q, want %q", tt.command, tt.arg, got, tt.want)
		}
	}
}
