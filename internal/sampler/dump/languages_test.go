package dump

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
)

// stand starts a program that says when it stands where it is expected.
func stand(t *testing.T, command ...string) int {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q is not ready: %q, %v", command, line, err)
	}
	return c.Process.Pid
}

// places are a stack's frames of some kinds, innermost first, as function:line.
// A line 0 is left out: functions written in C have none.
func places(one Thread, kinds ...profile.Kind) (names []string) {
	for _, f := range one.Frames {
		if !slices.Contains(kinds, f.Kind) {
			continue
		}
		name := f.Function
		if f.Line > 0 {
			name = fmt.Sprintf("%s %s:%d", name, filepath.Base(f.File), f.Line)
		}
		names = append(names, name)
	}
	return names
}

// stander is a program of testdata, and what its threads are found in.
type stander struct {
	command []string
	kinds   []profile.Kind
	asleep  []string // innermost first; what called them may follow
	at      []string // of the thread that is at work, one of its frames; none: there is no such thread
}

func standers(t *testing.T) map[string]stander {
	java := []string{"Stand$Place.stay Stand.java:18", "Stand$Place.stay Stand.java:14", "Stand$Place.stay Stand.java:14", "Stand$Place.stay Stand.java:14",
		"Stand.outer Stand.java:23", "Stand.main Stand.java:30"}
	compiled := []profile.Kind{profile.KindJavaCompiled, profile.KindJavaInterpreted}
	all := map[string]stander{
		"node": {[]string{"node", "testdata/stand.js"}, []profile.Kind{profile.KindV8}, []string{"wait stand.js:14", "wait stand.js:12", "wait stand.js:12", "wait stand.js:12",
			"(anonymous) stand.js:19", "forEach", "outer stand.js:19"}, []string{"spin stand.js:5", "spin stand.js:6"}},
		"php": {[]string{"php", "testdata/stand.php"}, []profile.Kind{profile.KindPHP}, []string{"sleep", "Place::wait stand.php:9", "Place::wait stand.php:6", "Place::wait stand.php:6",
			"Place::wait stand.php:6", "{closure} stand.php:14", "array_map", "outer stand.php:14", "{main} stand.php:17"}, nil},
		"ruby": {[]string{"ruby", "testdata/stand.rb"}, []profile.Kind{profile.KindRuby}, []string{"Kernel#sleep", "Place#wait stand.rb:11", "Place#wait stand.rb:8", "Place#wait stand.rb:8",
			"Place#wait stand.rb:8", "block in Object#outer stand.rb:16", "Array#each", "Object#outer stand.rb:16", "<main> stand.rb:20"}, []string{"Object#spin stand.rb:3"}},
		"perl": {[]string{"perl", "testdata/stand.pl"}, []profile.Kind{profile.KindPerl}, []string{"Place::wait stand.pl:9", "Place::wait stand.pl:6", "Place::wait stand.pl:6", "Place::wait stand.pl:6",
			"main::outer stand.pl:13", "(main program) stand.pl:16"}, nil},
		"java":             {[]string{"java", "testdata/Stand.java"}, compiled, java, []string{"Stand.spin Stand.java:7", "Stand.spin Stand.java:8"}},
		"java interpreted": {[]string{"java", "-Xint", "testdata/Stand.java"}, compiled, java, []string{"Stand.spin Stand.java:7", "Stand.spin Stand.java:8"}},
	}
	for _, python := range pythons(t) {
		all["python "+filepath.Base(filepath.Dir(filepath.Dir(python)))] = stander{[]string{python, "testdata/stand.py"}, []profile.Kind{profile.KindPython},
			[]string{"Place.wait stand.py:16", "Place.wait stand.py:14", "Place.wait stand.py:14", "Place.wait stand.py:14", "outer stand.py:20", "<module> stand.py:24"},
			[]string{"spin stand.py:8"}}
	}
	return all
}

// pythons are one of pyenv's for each way in which Python links its frames, else
// the system's.
func pythons(t *testing.T) (found []string) {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"3.[6-9].*", "3.10.*", "3.11.*", "3.12.*", "3.1[3-9].*"} {
		if of, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", version, "bin/python3")); len(of) > 0 {
			found = append(found, of[len(of)-1])
		}
	}
	if len(found) == 0 {
		found = []string{"python3"}
	}
	return found
}

// TestLanguages dumps programs whose threads stand where their source says.
func TestLanguages(t *testing.T) {
	needBPF(t)
	for name, s := range standers(t) {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(s.command[0]); err != nil {
				t.Skipf("no %s here", s.command[0])
			}
			pid := stand(t, s.command...)
			snapshot := takeAtWork(t, pid, len(s.at) > 0)
			var seen []string
			asleep, atWork := false, len(s.at) == 0
			for _, one := range snapshot.Threads {
				at := places(one, s.kinds...)
				seen = append(seen, fmt.Sprintf("%d %s, %s, ends %s: %q", one.TID, one.Name, one.State, one.End, at))
				if follow(at, s.asleep) {
					asleep = one.State == Sleeping && one.End == profile.EndComplete
				}
				for _, place := range s.at {
					atWork = atWork || slices.Contains(at, place) && one.End == profile.EndComplete
				}
			}
			if !asleep || !atWork {
				t.Errorf("asleep %v, want %q; at work %v, want one of %q; in\n%s", asleep, s.asleep, atWork, s.at, strings.Join(seen, "\n"))
			}
		})
	}
}

// takeAtWork dumps a process; where it has a thread at work, until that was
// caught: one that gives its CPU away each time may escape the timer.
func takeAtWork(t *testing.T, pid int, works bool) (s *Snapshot) {
	t.Helper()
	for range 5 {
		s = take(t, pid)
		caught := slices.ContainsFunc(s.Threads, func(one Thread) bool { return (one.State == Running || one.State == Runnable) && len(one.Frames) > 0 })
		if caught || !works {
			break
		}
	}
	return s
}

// TestDeepPython dumps a stack whose functions lie on more pages than one walk
// finds copied: it is undone and done again for each, and must lose nothing.
func TestDeepPython(t *testing.T) {
	needBPF(t)
	const deep = 300
	for _, python := range pythons(t) {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(python))), func(t *testing.T) {
			if _, err := exec.LookPath(python); err != nil {
				t.Skip("no Python here")
			}
			s := take(t, stand(t, python, "testdata/deep.py", fmt.Sprint(deep)))
			want := []string{"innermost"}
			for n := range deep {
				want = append(want, fmt.Sprintf("function%d", n+1))
			}
			var got []string
			for _, f := range s.Threads[0].Frames {
				if f.Kind == profile.KindPython {
					got = append(got, f.Function)
				}
			}
			if want = append(want, "<module>"); !slices.Equal(got, want) || s.Threads[0].End != profile.EndComplete {
				t.Errorf("ends %s with %d functions, want %d: %q", s.Threads[0].End, len(got), len(want), got)
			}
		})
	}
}
