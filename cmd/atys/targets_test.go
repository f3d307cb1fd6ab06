package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/sampler/external"
)

func someTargets() []lang.Target {
	const id = "5f1b0a4c3d2e1f00112233445566778899aabbccddeeff001122334455667788"
	return []lang.Target{
		{PID: 7, Comm: "java", Service: lang.Service{Name: "shop", Source: lang.FromEnvironment, Workload: proc.Workload{Container: id, Runtime: "docker"}},
			Runtimes: []lang.Runtime{{Kind: lang.HotSpot, Vendor: "Azul Systems, Inc.", Version: "8.0.272", Update: "8u272", JFR: true, Why: "names of Java are not read yet; native frames are"},
				{Kind: lang.Python, Vendor: "CPython", Version: "3.11.2", Why: "names of Python are not read yet; native frames are"}}},
		{PID: 1234567, Comm: "x", Service: lang.Service{Name: id, Source: lang.FromContainer, Workload: proc.Workload{Container: id}},
			Runtimes: []lang.Runtime{{Kind: lang.Native, Vendor: "Rust", Walked: true}}},
		{PID: 9, Comm: "\x1b[2J", Service: lang.Service{Name: "\x1b[2J\u202e", Source: lang.FromExecutable}, Err: errors.Join(fs.ErrPermission)},
	}
}

func TestTargetsTable(t *testing.T) {
	const want = `PID      SERVICE         RUNS IN              LANGUAGES                                    KERNEL  MISSING
7        shop            docker 5f1b0a4c3d2e  java 8u272 (Azul Systems, Inc.), python 3.11.2  bpf     names of Java are not read yet; native frames are; names of Python are not read yet; native frames are
1234567  5f1b0a4c3d2e    5f1b0a4c3d2e         rust                                            bpf
9        \x1b[2J\u202e                                                                        -       it may not be read
`
	var b strings.Builder
	if err := targetsText(&b, someTargets(), kernels{}, render.Options{NoColor: true}); err != nil {
		t.Fatal(err)
	}
	if squeeze(b.String()) != squeeze(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if at := strings.Index(lines[0], "KERNEL"); strings.Index(lines[1], "bpf") != at || strings.Index(lines[2], "bpf") != at {
		t.Errorf("columns are not aligned:\n%s", b.String())
	}
	for _, width := range []int{60, 80, 120} {
		b.Reset()
		if err := targetsText(&b, someTargets(), kernels{}, render.Options{NoColor: true, Width: width}); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d cells in %d: %q", n, width, line)
			}
		}
		if !strings.Contains(b.String(), "1234567  ") || !strings.Contains(b.String(), "MISSING") {
			t.Errorf("in %d cells, numbers or heads were cut:\n%s", width, b.String())
		}
	}
}

// TestTargetsWithoutBPF has nothing to sample a process with that is not there
// to be looked at.
func TestTargetsWithoutBPF(t *testing.T) {
	k, targets := kernels{noBPF: errors.New("not permitted")}, someTargets()
	if got := k.of(&targets[1]); got != "" {
		t.Errorf("%q will sample a process that has ended", got)
	}
	if n := unreadable(targets); n != 1 {
		t.Errorf("%d of them may not be read, want 1", n)
	}
}

func TestOtherKernelsLack(t *testing.T) {
	perl := lang.Runtime{Kind: lang.Perl, Version: "5.36.0", Walked: true}
	java := lang.Runtime{Kind: lang.HotSpot, Version: "17.0.15", Walked: true}
	native := lang.Runtime{Kind: lang.Native, Walked: true}
	for _, test := range []struct {
		kernel   external.Kernel
		runtimes []lang.Runtime
		want     string
	}{
		{external.Perf, []lang.Runtime{native}, ""},
		{external.Perf, []lang.Runtime{perl, java}, "perf shows no functions of perl 5.36.0; perf shows functions of java 17.0.15 as far as it writes a perf map"},
		{external.PySpy, []lang.Runtime{{Kind: lang.Python, Version: "3.11.7", Walked: true}}, "py-spy shows functions of Python alone"},
	} {
		if got := strings.Join(lackedBy(test.kernel, test.runtimes), "; "); got != test.want {
			t.Errorf("%s of %v: got %q, want %q", test.kernel, test.runtimes, got, test.want)
		}
	}
}

// squeeze makes one space of several.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}
