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

// erlang compiles a module and gives the command that runs its main.
func erlang(t *testing.T, source, module string) *exec.Cmd {
	t.Helper()
	for _, tool := range []string{"erl", "erlc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("no Erlang: install erlang-base")
		}
	}
	if out, err := exec.Command("erl", "-noshell", "-eval", `io:format("~s", [erlang:system_info(otp_release)]), halt().`).Output(); err != nil || string(out) != "25" {
		t.Skipf("Erlang/OTP is %q (%v), 25 is supported", out, err)
	}
	tellVersion(t, "25")
	directory := t.TempDir()
	if out, err := exec.Command("erlc", "-o", directory, source).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return exec.Command("erl", "+S", "1", "-noshell", "-pa", directory, "-s", module, "main", "x")
}

// erlangChains is what chains.erl may be doing.
var erlangChains = regexp.MustCompile(`^loop/1(?:` + strings.Join([]string{
	``,
	` recursing/1( descend/2){0,20}`,
	` recursing/1( descend/2){21}( burn/2)?`,
	` mapping/1`,
	` mapping/1 -mapping/1-fun-0-/2( each/2( burn/2)?)?`,
}, "|") + `)$`)

func TestErlangChains(t *testing.T) {
	needsBPF(t)
	pid := launch(t, erlang(t, "testdata/beam/chains.erl", "chains"))
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.BEAM)
	var all, whole, wrong int64
	seen := map[string]int64{}
	for _, o := range cut(t, r, 3*time.Second) {
		all += o.samples
		if o.end != profile.EndComplete {
			continue
		}
		whole += o.samples
		var names []string
		for _, f := range o.of(profile.KindBEAM) {
			if name, ok := strings.CutPrefix(f.Function, "chains:"); ok {
				names = append(names, name)
			}
		}
		chain := strings.Join(names, " ")
		seen[chain] += o.samples
		if chain != "" && !erlangChains.MatchString(chain) {
			wrong += o.samples // a new frame's words are those of an older one until they are written
			t.Logf("%d samples of %q, which cannot be: %v", o.samples, chain, o.chain(profile.KindBEAM))
		}
	}
	if tooMany(wrong, all) {
		t.Errorf("%d of %d samples show calls that cannot be", wrong, all)
	}
	t.Logf("%d samples, %d whole; chains: %v", all, whole, seen)
	if all < 200 {
		t.Fatalf("%d samples", all)
	}
	if float64(whole) < 0.95*float64(all) { // what is in C does not know which Erlang process called it
		t.Errorf("%d of %d stacks are whole", whole, all)
	}
	for _, chain := range []string{
		"loop/1 recursing/1" + strings.Repeat(" descend/2", 21) + " burn/2",
		"loop/1 mapping/1 -mapping/1-fun-0-/2 each/2 burn/2",
	} {
		if seen[chain] == 0 {
			t.Errorf("%q was not seen", chain)
		}
	}
}
