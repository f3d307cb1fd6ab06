package languages

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// script is a program whose calls are known.
type script struct {
	kind   profile.Kind
	path   string // below testdata
	legal  []string
	needed []string
	// calls tells the line of a call from others: what stands in it, by the
	// name of the called function; without an entry the name's last word.
	calls map[string]string
}

var lastWord = regexp.MustCompile(`[[:word:]]+$`)

// check asserts that the stacks of a script are whole, legal, and at the right
// lines: each caller's line makes the call that is seen.
func (s *script) check(t *testing.T, stacks []observed) {
	t.Helper()
	legal := regexp.MustCompile(`^(?:` + strings.Join(s.legal, "|") + `)$`)
	source := strings.Split(readFile(t, "testdata/"+s.path), "\n")
	chains, shown := map[string]int64{}, 0
	var all, cut, illegal, misplaced, lines int64
	for _, o := range stacks {
		chain := o.chain(s.kind)
		all += o.samples
		if o.end.Truncated() {
			cut += o.samples
			show(t, &shown, "cut: %v", o, o.end)
			continue
		}
		chains[chain] += o.samples
		if !legal.MatchString(chain) {
			illegal += o.samples
			show(t, &shown, "not legal: %s", o, chain)
		}
		frames := o.of(s.kind)
		for i := 0; i+1 < len(frames); i++ {
			if !strings.HasSuffix(s.path, lastElement(frames[i].File)) || frames[i].File == "" {
				continue
			}
			lines++
			if line := frames[i].Line; line < 1 || line > len(source) || !strings.Contains(source[line-1], s.call(frames[i+1].Function)) {
				misplaced++
				show(t, &shown, "%s calls %s at line %d", o, frames[i].Function, frames[i+1].Function, line)
			}
		}
	}
	t.Logf("%d samples, %d cut, %d not legal; %d calls, %d at wrong lines", all, cut, illegal, lines, misplaced)
	if all < 100 || lines < 100 {
		t.Fatalf("%d samples and %d calls only", all, lines)
	}
	if tooMany(illegal, all) {
		t.Errorf("%d of %d samples show calls that the program does not make", illegal, all)
	}
	if misplaced*200 > lines {
		t.Errorf("%d of %d calls are at wrong lines", misplaced, lines)
	}
	if cut*1000 > all*15 {
		t.Errorf("%d of %d stacks are cut", cut, all)
	}
	for _, needed := range s.needed {
		if chains[needed] == 0 {
			t.Errorf("never seen: %s", needed)
		}
	}
}

// recordScripts runs programs, records all at once, for so long each, and gives
// what was seen of each.
func recordScripts(t *testing.T, language unwind.Language, each time.Duration, programs map[string]*exec.Cmd) map[string][]observed {
	t.Helper()
	byPID := map[int]string{}
	var pids []int
	for name, cmd := range programs {
		pid := launch(t, cmd)
		byPID[pid] = name
		pids = append(pids, pid)
	}
	r := begin(t, 999, pids...)
	for _, pid := range pids {
		waitFor(t, r.Unwinder(), pid, language)
	}
	seen := map[string][]observed{}
	for _, o := range cutEnough(t, r, each*time.Duration(len(pids)), enoughOf(999, each), pids) {
		seen[byPID[o.pid]] = append(seen[byPID[o.pid]], o)
	}
	return seen
}

// enoughOf is how many samples show of a program what it does in so long a time.
func enoughOf(frequency float64, each time.Duration) int64 {
	return int64(0.7 * frequency * each.Seconds())
}

// needs finds a program, or skips.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("no %s here: make deps installs it", program)
	}
	out, err := exec.Command(path, "-v").CombinedOutput()
	if err != nil {
		t.Fatalf("%s -v: %v\n%s", path, err, out)
	}
	tellVersion(t, versionNumber.FindString(string(out)))
	return path
}

// versionNumber is the first thing that looks like one.
var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+`)

// tellVersion has the matrix know which runtime a test recorded (test/languages/matrix).
func tellVersion(t *testing.T, version string) {
	t.Helper()
	t.Logf("runtime: %s", version)
}

func (s *script) call(function string) string {
	if text, ok := s.calls[function]; ok {
		return text
	}
	return lastWord.FindString(function)
}

func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
