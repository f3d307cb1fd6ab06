package languages

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// TestCut has runtimes run whose compiled code leaves no way to walk it: frame
// pointers would leave callers out without a word, so that a stack of it may
// never be called whole.
func TestCut(t *testing.T) {
	needsBPF(t)
	for _, program := range []string{"mcs", "mono", "luajit"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here: make deps installs it", program)
		}
	}
	mono := filepath.Join(t.TempDir(), "chains.exe")
	if out, err := exec.Command("mcs", "-langversion:7", "-out:"+mono, "testdata/dotnet/Chains.cs").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	for name, cmd := range map[string]*exec.Cmd{
		"Mono":   exec.Command("mono", mono),
		"LuaJIT": exec.Command("luajit", "testdata/luajit/chains.lua"),
	} {
		t.Run(name, func(t *testing.T) {
			pid := launch(t, cmd)
			var all, whole int64
			for _, o := range cutEnough(t, begin(t, 997, pid), 2*time.Second, 400, []int{pid}) {
				if len(o.of(profile.KindJIT)) == 0 {
					continue
				}
				all += o.samples
				if o.end == profile.EndComplete {
					whole += o.samples
					t.Logf("%d samples are called whole: %v", o.samples, o.chain(profile.KindNative, profile.KindJIT))
				}
			}
			if all < 200 || whole > 0 {
				t.Errorf("%d of %d samples in compiled code are called whole", whole, all)
			}
		})
	}
}
