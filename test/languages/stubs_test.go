package languages

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// Code that runtimes make, in memory without a file, and that is no function of
// a language. It keeps no frame of its own, or one without a frame pointer: who
// called it is lost, or passed over, where that is not known.

// TestPHPRegularExpressions records code that PCRE compiled.
func TestPHPRegularExpressions(t *testing.T) {
	needsBPF(t)
	program := exec.Command(needs(t, "php"), "-d", "opcache.enable_cli=0", "testdata/php/matching.php")
	var compiled, whole int64
	for _, o := range recordScripts(t, unwind.PHP, 2*time.Second, map[string]*exec.Cmd{"matching": program})["matching"] {
		if len(o.of(profile.KindJIT)) == 0 {
			continue
		}
		compiled += o.samples
		if chain := o.chain(profile.KindPHP); o.end == profile.EndComplete && chain == `{main};Text\search;preg_match_all` {
			whole += o.samples
		} else {
			t.Logf("%d samples end with %v: %s", o.samples, o.end, chain)
		}
	}
	t.Logf("%d samples in a compiled expression, %d whole", compiled, whole)
	if compiled < 200 || whole*1000 < compiled*985 { // its first and last instructions are not known
		t.Errorf("of %d samples in a compiled expression %d are whole", compiled, whole)
	}
}

// TestDotNetStubs records calls through an interface: the method that makes them
// must be seen, and is passed over if its frame is taken for the stub's. Methods are
// called through a jump as well, as long as they may be compiled again, which is a stub
// called by Main or Around: once for a thousand calls through the interface.
func TestDotNetStubs(t *testing.T) {
	needsBPF(t)
	pid := launch(t, dotnet(t, "testdata/dotnet/Stubs.cs"))
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.DotNet)
	time.Sleep(2 * time.Second) // methods are compiled again while they are young
	var stubs, wrong int64
	for _, o := range cut(t, r, 3*time.Second) {
		if o.end != profile.EndComplete || !strings.HasSuffix(o.chain(profile.KindDotNet), ";[stub]") {
			continue
		}
		stubs += o.samples
		if chain := own(o); chain != "Main Around Calling" {
			wrong += o.samples
			t.Logf("%d samples of a stub called by %q", o.samples, chain)
		}
	}
	t.Logf("%d samples in stubs, %d with another caller", stubs, wrong)
	if stubs < 100 || wrong*100 > stubs {
		t.Errorf("of %d samples in stubs %d have another caller", stubs, wrong)
	}
}
