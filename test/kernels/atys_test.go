//go:build kernels

package kernels

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile/folded"
	"atys.dev/atys/test/victims"
)

// On the oldest kernel we speak of, every program of ours loads, and a native
// program's stacks are walked to their end.
func TestAtys(t *testing.T) {
	atys, err := Build(t.Context(), t.TempDir(), "atys.dev/atys/cmd/atys")
	if err != nil {
		t.Fatal(err)
	}
	verified, err := Build(t.Context(), t.TempDir(), "atys.dev/atys/bench/verified")
	if err != nil {
		t.Fatal(err)
	}
	victim, err := victims.Build(t.TempDir(), "burn25", victims.Options{Static: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range series {
		t.Run(s, func(t *testing.T) {
			results, err := Run(t.Context(), VM{
				Kernel: fetch(t, s),
				Files: map[string]string{"/bin/atys": atys, "/bin/burn25": victim, "/bin/verified": verified,
					"/sampler.o": "../../internal/sampler/cpu/kernel_x86_bpfel.o", "/dump.o": "../../internal/sampler/dump/kernel_x86_bpfel.o",
					"/unwind.o": "../../internal/unwind/kernel_x86_bpfel.o", "/table.o": "../../internal/sampler/table/kernel_x86_bpfel.o"},
				Commands: []string{
					"verified /sampler.o /dump.o /unwind.o /table.o",
					"atys doctor",
					"burn25 1000000 &victim&",
					"sleep 1",
					"atys record -p $victim -d 3s -F 199 -o /tmp/p.folded",
					"cat /tmp/p.folded",
				},
				CommandTimeout: 5 * time.Minute, // without KVM, and with others at work, the verifier takes minutes
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if strings.HasSuffix(r.Command, "&") {
					continue // runs until the machine ends it
				}
				if err := r.Err(); err != nil {
					t.Errorf("%s: %v\n%s", r.Command, err, r.Stderr)
				}
			}
			t.Logf("%s", results[0].Stdout)
			if bytes.Contains(results[0].Stdout, []byte("refused")) {
				t.Errorf("this kernel refuses programs:\n%s", results[0].Stderr)
			}
			checkStacks(t, results[len(results)-1].Stdout)
		})
	}
}

// checkStacks wants 99% of the samples in stacks that are whole and end where
// the victim burns.
func checkStacks(t *testing.T, text []byte) {
	t.Helper()
	w, err := folded.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var whole, all int64
	for _, r := range w.Rows.All() {
		frames := w.AppendStack(nil, r.Stack)
		all += r.N
		if len(frames) >= 23 && !w.Stacks[r.Stack].End.Truncated() {
			whole += r.N
		}
	}
	t.Logf("%d of %d samples have whole stacks", whole, all)
	if all < 100 || float64(whole) < 0.99*float64(all) {
		t.Errorf("%d of %d samples have whole stacks, want 99%% of at least 100:\n%s", whole, all, text)
	}
}
