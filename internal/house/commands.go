package house

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// A Block is one fenced block of commands in a document.
type Block struct {
	Path   string
	Line   int // of the fence
	Lang   string
	Text   string
	Reason string // why it is not executed with the others; empty: it is
	ByCI   bool   // .ci/run executes it as a step of its own
}

// Two comments on the line before a block keep it from being executed with
// the rest of its document; one says why, the other promises that .ci/run
// holds the very same lines.
var (
	notRun  = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	runByCI = regexp.MustCompile(`^<!-- run by \.ci/run -->$`)
	fence   = regexp.MustCompile("^```([A-Za-z0-9_+-]*)$")
)

// Blocks returns the fenced blocks of a document in order, whatever their
// language.
func Blocks(name string, data []byte) (blocks []Block) {
	var open *Block
	marker := ""
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch m := fence.FindStringSubmatch(line); {
		case open != nil && line == "```":
			blocks = append(blocks, *open)
			open, marker = nil, ""
		case open != nil:
			open.Text += line + "\n"
		case m != nil:
			open = &Block{Path: name, Line: i + 1, Lang: m[1], ByCI: runByCI.MatchString(marker)}
			if m := notRun.FindStringSubmatch(marker); m != nil {
				open.Reason = m[1]
			}
		case strings.TrimSpace(line) != "":
			marker = line
		}
	}
	return blocks
}

// Runs reports whether the block is executed as part of its document.
func (b Block) Runs() bool { return b.Lang == "sh" && b.Reason == "" && !b.ByCI }

// HasCommands reports whether the commands of the document are promised to
// work: the README and the guides.
func HasCommands(name string) bool {
	return name == "README.md" || path.Dir(name) == "docs/guide" && path.Ext(name) == ".md"
}

// Script joins the blocks of one document into one bash script, as a reader
// types them into one shell, one after the other. The first command that
// fails ends it, and what it prints last names the block. A command cut off
// by its reader (`... | head`) has not failed. Root has no need of sudo, and
// a machine where only root exists has none.
func Script(blocks []Block) string {
	var b strings.Builder
	b.WriteString("set -E -o pipefail\n")
	b.WriteString("trap 'c=$?; [ $c -eq 141 ] || exit $c' ERR\n")
	b.WriteString("if [ \"$(id -u)\" = 0 ] && ! command -v sudo >/dev/null; then sudo() { \"$@\"; }; fi\n")
	for _, block := range blocks {
		if block.Runs() {
			fmt.Fprintf(&b, "echo '==> %s:%d' >&2\n%s", block.Path, block.Line, block.Text)
		}
	}
	b.WriteString("true\n")
	return b.String()
}

// checkCommands leaves no command of a promised document out: shell under
// another name, a prompt, or a step that .ci/run does not have.
func checkCommands(t *Tree) (bad []Violation) {
	ci := map[string]bool{}
	for _, line := range strings.Split(string(t.text(".ci/run")), "\n") {
		ci[strings.TrimSpace(line)] = true
	}
	for _, f := range t.Texts {
		if !HasCommands(f.Path) {
			continue
		}
		if strings.Count("\n"+string(f.Data), "\n```")%2 != 0 {
			bad = append(bad, Violation{f.Path, 0, "a fenced block is never closed"})
		}
		for _, b := range Blocks(f.Path, f.Data) {
			fail := func(format string, args ...any) {
				bad = append(bad, Violation{f.Path, b.Line, fmt.Sprintf(format, args...)})
			}
			switch b.Lang {
			case "bash", "shell", "console", "zsh", "shell-session":
				fail("a block of %q: commands stand in ```sh blocks, which are executed", b.Lang)
			case "":
				fail("a block without a language: sh for commands, text for what they print")
			case "sh":
				if strings.HasPrefix(b.Text, "$ ") || strings.Contains(b.Text, "\n$ ") {
					fail("a prompt in a block that is executed as typed")
				}
			}
			if !b.ByCI {
				continue
			}
			for _, line := range strings.Split(strings.TrimSpace(b.Text), "\n") {
				if command, _, _ := strings.Cut(line, " #"); !ci[strings.TrimSpace(command)] {
					fail(".ci/run has no line %q", command)
				}
			}
		}
	}
	return bad
}
