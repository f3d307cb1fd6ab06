package languages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"atys.dev/atys/internal/profile"
)

// virtualJDKs lists JDKs that have virtual threads: all of them under
// ATYS_MATRIX or in ATYS_JDKS, else one.
func virtualJDKs(t *testing.T) map[string]string {
	t.Helper()
	needsBPF(t)
	found := installedJDKs(t)
	for name, java := range found {
		if !hasVirtualThreads(java) {
			delete(found, name)
		}
	}
	if len(found) == 0 {
		t.Skip("no JDK here has virtual threads: install 21 or later, run .ci/runtimes, or name one in ATYS_JDKS")
	}
	return chosenJDKs(t, found)
}

// hasVirtualThreads asks the JDK itself.
func hasVirtualThreads(java string) bool { return specification(java) >= "21" }

// specifications are those of JDKs that were asked already, which takes a second.
var specifications sync.Map

// specification gives the number of the Java that a JDK is of, two digits.
func specification(java string) string {
	if known, ok := specifications.Load(java); ok {
		return known.(string)
	}
	number := askSpecification(java)
	specifications.Store(java, number)
	return number
}

func askSpecification(java string) string {
	out, _ := exec.Command(java, "-XshowSettings:properties", "-version").CombinedOutput()
	m := regexp.MustCompile(`java\.specification\.version = (\d\d)\b`).FindSubmatch(out)
	if m == nil {
		return ""
	}
	return string(m[1])
}

var (
	mountedChain = regexp.MustCompile(`^\$Mounted\.run( \$Mounted\.descend){0,23}( \.burn)?$`)
	parkingChain = regexp.MustCompile(`^\$Parking\.run( \$Parking\.sink){0,63}$|^\$Parking\.run( \$Parking\.sink){61}( \$Parking\.awake( \.burn)?)?$`)
)

func TestJavaVirtualThreads(t *testing.T) {
	classes := compileJava(t)
	for name, java := range virtualJDKs(t) {
		for mode, options := range map[string][]string{"compiled": nil, "interpreted": {"-Xint"}} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				var count tally
				for _, o := range seenJava(t, exec.Command(java, append(append([]string{"-cp", classes}, options...), "Virtual")...), recorded) {
					chain := o.own("Virtual")
					if chain == "" || strings.HasPrefix(chain, ".lambda") {
						continue
					}
					count.add(t, o)
					if o.end == profile.EndComplete && !mountedChain.MatchString(chain) && !parkingChain.MatchString(chain) {
						count.wrong += o.samples
						t.Logf("%d samples of an illegal chain %q", o.samples, squeeze(chain))
					}
				}
				count.judge(t)
				count.judgeWhole(t)
			})
		}
	}
}

// judgeWhole fails where more samples are cut than the project's floor allows.
func (c *tally) judgeWhole(t *testing.T) {
	t.Helper()
	if c.whole*1000 < c.all*985 {
		t.Errorf("%d of %d samples are whole", c.whole, c.all)
	}
}

// TestJavaVirtualThreadsWait records virtual threads that wait in the middle of
// a chain of 20 calls: when they go on, their older frames are in the heap.
func TestJavaVirtualThreadsWait(t *testing.T) {
	classes := compileJava(t)
	for name, java := range virtualJDKs(t) {
		for mode, options := range map[string][]string{
			"compiled":    {"-Xmx64m"},
			"interpreted": {"-Xmx64m", "-Xint"},
			"c1":          {"-Xmx64m", "-XX:TieredStopAtLevel=1"},
			"not-inlined": {"-Xmx64m", "-XX:-Inline"},
			"g1":          {"-Xmx256m", "-XX:+UseG1GC"},
			"parallel":    {"-Xmx256m", "-XX:+UseParallelGC", "-XX:+UseCountedLoopSafepoints"}, // else a loop may be placed in another call
			"shifted":     {"-Xmx5g", "-Xmn8m"},
			"based":       {"-Xmx5g", "-Xmn8m", "-XX:HeapBaseMinAddress=64g"},
			"wide":        {"-Xmx64m", "-XX:-UseCompressedOops"},
			"wideClasses": {"-Xmx64m", "-XX:-UseCompressedClassPointers"},
			"compact":     {"-Xmx64m", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockExperimentalVMOptions", "-XX:+UseCompactObjectHeaders"},
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				if mode != "compiled" && mode != "interpreted" && os.Getenv("ATYS_MATRIX") == "" {
					t.Skip("how references, headers and collectors change it is recorded under ATYS_MATRIX")
				}
				args := append(append([]string{"-cp", classes}, options...), "Waiting")
				count := seenWaiting(t, exec.Command(java, args...))
				count.judge(t)
				count.judgeWhole(t)
			})
		}
	}
}

// TestJavaVirtualThreadsCut records them where their older frames cannot be
// read: what is shown is legal, and says that it is cut.
func TestJavaVirtualThreadsCut(t *testing.T) {
	classes := compileJava(t)
	for name, java := range virtualJDKs(t) {
		t.Run(name, func(t *testing.T) {
			count := seenWaiting(t, exec.Command(java, "-Xmx256m", "-XX:+UseZGC", "-cp", classes, "Waiting"))
			t.Logf("%d of %d samples have a function that was gone before it was named: ZGC unloads code, too", count.unnamed, count.all)
			count.unnamed = 0
			count.judge(t)
		})
	}
}

// TestJavaVirtualThreadsStripped records them on a libjvm without symbols.
func TestJavaVirtualThreadsStripped(t *testing.T) {
	objcopy, err := exec.LookPath("objcopy")
	if err != nil {
		t.Skip("no objcopy here to strip libjvm with: install binutils")
	}
	classes := compileJava(t)
	for name, java := range virtualJDKs(t) {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if out, err := exec.Command("cp", "-r", filepath.Dir(filepath.Dir(java))+"/.", home).CombinedOutput(); err != nil {
				t.Fatalf("copy the JDK: %v\n%s", err, out)
			}
			if out, err := exec.Command(objcopy, "--strip-all", filepath.Join(home, "lib/server/libjvm.so")).CombinedOutput(); err != nil {
				t.Fatalf("strip libjvm: %v\n%s", err, out)
			}
			count := seenWaiting(t, exec.Command(filepath.Join(home, "bin/java"), "-Xmx64m", "-cp", classes, "Waiting"))
			count.judge(t)
			count.judgeWhole(t)
		})
	}
}

// seenWaiting records Waiting, and counts what shows calls that cannot be.
func seenWaiting(t *testing.T, cmd *exec.Cmd) (count tally) {
	t.Helper()
	var deepest int64
	for _, o := range seenOften(t, cmd, recorded) {
		chain := o.own("Waiting")
		if chain == "" || strings.HasPrefix(chain, ".main") {
			continue
		}
		unnamed := count.unnamed
		count.add(t, o)
		if count.unnamed > unnamed {
			continue
		}
		if err := legalStack(o, chain); err != nil {
			count.wrong += o.samples
			t.Logf("%d samples, end %v, of %q: %v", o.samples, o.end, squeeze(chain), err)
		}
		if strings.HasSuffix(chain, "c20 .burn") {
			deepest += o.samples
		}
	}
	if deepest == 0 {
		t.Error("no sample is of the innermost call")
	}
	return count
}

// legalStack checks a stack of Waiting: its own calls, the frames below them,
// and that it says so where some are missing.
func legalStack(o observed, chain string) error {
	java := o.chain(profile.KindJavaCompiled, profile.KindJavaInterpreted)
	marked := strings.Contains(java, "[older frames of a parked virtual thread]")
	switch {
	case marked != (o.end == profile.EndParked):
		return fmt.Errorf("it is marked as cut: %v", marked)
	case o.end == profile.EndComplete && !strings.Contains(java, "java.lang.VirtualThread.runContinuation;"):
		return fmt.Errorf("the carrier's frames are missing")
	}
	return legalWaiting(chain, marked)
}

// legalWaiting checks a chain: run c01 c02 ... up to any of them, then burn,
// which c11 to c19 do not call. One that is cut may begin anywhere.
func legalWaiting(chain string, isCut bool) error {
	last, next := 0, 0
	for i, name := range strings.Fields(chain) {
		var number int
		switch _, err := fmt.Sscanf(name, "$Chain.c%02d", &number); {
		case name == "$Chain.run" && i == 0:
			next = 1
		case err == nil && (number == next || isCut && i == 0):
			last, next = number, number+1
		case name == ".burn" && (last > 0 && last <= 10 || last == 20 || isCut && i == 0):
			last, next = 0, -1
		default:
			return fmt.Errorf("%q cannot be where it is", name)
		}
	}
	return nil
}

func TestLegalWaiting(t *testing.T) {
	all := "$Chain.run"
	for n := range 20 {
		all += fmt.Sprintf(" $Chain.c%02d", n+1)
	}
	for chain, want := range map[string]bool{
		"$Chain.run": true, all: true, all + " .burn": true, "$Chain.run $Chain.c01 .burn": true,
		"$Chain.run .burn": false, "$Chain.c01": false, "$Chain.run $Chain.c02": false, "$Chain.run $Chain.c01 $Chain.c01": false,
		strings.Replace(all, " $Chain.c10", "", 1): false, strings.TrimSuffix(all, " $Chain.c20") + " .burn": false, all + " .burn .burn": false,
	} {
		if err := legalWaiting(chain, false); (err == nil) != want {
			t.Errorf("%q: %v", chain, err)
		}
	}
	if err := legalWaiting("$Chain.c19 $Chain.c20 .burn", true); err != nil {
		t.Errorf("a chain that is cut: %v", err)
	}
}
