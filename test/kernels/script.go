package kernels

import (
	"fmt"
	"strings"
	"time"
)

// Script is what init runs, in order.
type Script struct {
	Commands []Command
	Timeout  time.Duration // of each command
}

// Command is one parsed command line.
type Command struct {
	Args []string
	Name string // of a background command, else ""
}

// PIDOf says which background command an argument stands for the pid of, ""
// if it stands for itself. Names are only those of earlier commands.
func (s Script) PIDOf(command int, arg string) string {
	name, ok := strings.CutPrefix(arg, "$")
	if !ok {
		return ""
	}
	for _, c := range s.Commands[:command] {
		if c.Name != "" && c.Name == name {
			return name
		}
	}
	return ""
}

// ParseCommands reads command lines: words split at spaces, single quotes
// around words with spaces (” is a quote inside them), no shell behind
// them. A line that ends in &name& starts a command in the background; in
// later lines an argument $name is its pid. Background commands that are
// still there at the end get SIGTERM.
func ParseCommands(lines []string) ([]Command, error) {
	var commands []Command
	seen := map[string]bool{}
	for _, line := range lines {
		words, err := split(line)
		if err != nil {
			return nil, fmt.Errorf("command %q: %w", line, err)
		}
		c := Command{Args: words}
		if n := len(words); n > 0 {
			if name, ok := backgroundName(words[n-1]); ok {
				c.Args, c.Name = words[:n-1], name
			}
		}
		if len(c.Args) == 0 || c.Args[0] == "" {
			return nil, fmt.Errorf("command %q: has no program", line)
		}
		if c.Name != "" && seen[c.Name] {
			return nil, fmt.Errorf("command %q: the name %q is taken by an earlier one", line, c.Name)
		}
		seen[c.Name] = true
		commands = append(commands, c)
	}
	return commands, nil
}

func backgroundName(word string) (string, bool) {
	if len(word) < 3 || word[0] != '&' || word[len(word)-1] != '&' {
		return "", false
	}
	return word[1 : len(word)-1], true
}

func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, started := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == 0 || c == '\n':
			return nil, fmt.Errorf("has a NUL or a line end at byte %d", i)
		case c == '\'' && quoted && i+1 < len(line) && line[i+1] == '\'':
			word.WriteByte(c)
			i++
		case c == '\'':
			quoted, started = !quoted, true
		case (c == ' ' || c == '\t') && !quoted:
			if started {
				words = append(words, word.String())
				word.Reset()
			}
			started = false
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("has an open quote")
	}
	if started {
		words = append(words, word.String())
	}
	return words, nil
}
