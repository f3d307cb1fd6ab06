package targets

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
)

// TestOwners has short-lived commands be of what they ran in.
func TestOwners(t *testing.T) {
	ids := newIdentities("here", profile.Labels{"zone": "a"})
	for _, c := range []struct {
		name string
		of   lang.Service
		want profile.Labels
	}{
		{"of nothing", lang.Service{Name: "cc1", Source: lang.FromExecutable},
			profile.Labels{"service": ShortLived}},
		{"of a session", lang.Service{Name: "cc1", Source: lang.FromExecutable, Workload: proc.Workload{Unit: "session-3.scope"}},
			profile.Labels{"service": ShortLived, "unit": "session-3.scope"}},
		{"of a unit", lang.Service{Name: "ci", Source: lang.FromUnit, Workload: proc.Workload{Unit: "ci.service"}},
			profile.Labels{"service": "ci", "unit": "ci.service", "executable": ShortLived}},
		{"of a container", lang.Service{Name: "abc", Source: lang.FromContainer, Workload: proc.Workload{Container: "abc"}},
			profile.Labels{"service": "abc", "container": "abc", "executable": ShortLived}},
		{"of a service with a name", lang.Service{Name: "shop", Instance: "1", Source: lang.FromEnvironment, Workload: proc.Workload{Unit: "session-3.scope"}},
			profile.Labels{"service": "shop", "instance": "1", "unit": "session-3.scope", "executable": ShortLived}},
	} {
		c.want["node"], c.want["zone"] = "here", "a"
		if got := ids.ownerOf(c.of); got.String() != c.want.String() {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestShortLived has only processes be short-lived commands that are known to have lived for
// less than a window, and only targets that have no others.
func TestShortLived(t *testing.T) {
	const window = 10 * time.Second
	c := NewCensus("here", nil)
	c.fs = proc.FS{Root: t.TempDir()}
	boot := wire.SinceBoot()
	of := func(service string, age time.Duration) *identity {
		labels := profile.Labels{"service": service}
		return &identity{started: boot - age, labels: labels, together: profile.Labels{"service": ShortLived, "unit": "x"}, asked: time.Now()}
	}
	c.known[1] = of("cc1", 3*time.Second)
	c.known[2] = of("cc1", 2*time.Second)
	c.known[3] = of("old", time.Minute) // has ended, and had lived for long
	c.known[4], c.known[5] = of("shop", time.Hour), of("shop", time.Second)
	kernel := of("kernel", time.Second)
	kernel.kernel = true
	c.known[6] = kernel
	alive := filepath.Join(c.fs.Root, "7")
	if err := os.Mkdir(alive, 0o700); err != nil {
		t.Fatal(err)
	}
	inode, err := c.fs.Inode(7)
	if err != nil {
		t.Fatal(err)
	}
	c.known[7] = of("young", time.Second)
	c.known[7].inode, c.known[7].until = inode, time.Now().Add(time.Hour)
	var threads []profile.Thread
	for pid := 1; pid <= 8; pid++ { // nothing is known of the last
		threads = append(threads, profile.Thread{PID: pid, TID: pid, Process: "sed"})
	}
	services := func(together bool) (all []string, brief int) {
		labels, brief := c.Of(threads, Commands{Within: window, Together: together})
		for _, l := range labels {
			all = append(all, l["service"])
		}
		return all, brief
	}
	apart := "[cc1 cc1 old shop shop kernel young sed]"
	for name, listed := range map[string]time.Time{"just now": time.Now(), "long ago": time.Now().Add(-time.Minute)} {
		c.listed = listed
		last, brief := ShortLived, 2
		if name == "long ago" { // it may have run since
			last, brief = "sed", 1
		}
		if got, n := services(false); fmt.Sprint(got) != apart || n != brief {
			t.Errorf("what runs was listed %s: %v, %d of commands; want %v, %d", name, got, n, apart, brief)
		}
		want := fmt.Sprintf("[%s %s old shop shop kernel young %s]", ShortLived, ShortLived, last)
		if got, n := services(true); fmt.Sprint(got) != want || n != brief {
			t.Errorf("what runs was listed %s: %v, %d of commands; want %v, %d", name, got, n, want, brief)
		}
	}
	if all, brief := c.Of(threads, Commands{}); brief != 0 || all[0]["service"] != "cc1" {
		t.Errorf("%d of commands where none is asked for", brief)
	}
}

// TestKernelThreadsBecomeCommands has a kernel thread run a program that ends at once, as helpers
// of the kernel do: it is a short-lived command of nothing.
func TestKernelThreadsBecomeCommands(t *testing.T) {
	ids := newIdentities("here", nil)
	ids.fs = proc.FS{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(ids.fs.Root, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	now := fmt.Sprint(int64(wire.SinceBoot().Seconds() * 100))
	const kernelThread = 0x00200000
	runs := func(name string, flags, stack int) {
		t.Helper()
		fields := fmt.Sprintf("7 (%s) S 2 0 0 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %s 0 0 0 0 0 %d", name, flags, now, stack)
		if err := os.WriteFile(filepath.Join(ids.fs.Root, "7", "stat"), []byte(fields+strings.Repeat(" 0", 30)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs("kworker", kernelThread, 0)
	ids.begin()
	if got := ids.target(7, "kworker"); got["service"] != "kernel" {
		t.Fatalf("a kernel thread is %v", got)
	}
	runs("modprobe", 0, 4096)
	ids.known[7].until = time.Time{}
	ids.begin()
	ids.target(7, "modprobe")
	if got := ids.together(7); got["service"] != ShortLived {
		t.Errorf("as a command it is part of %v", got)
	}
}

// TestTogetherChangesNoOther has random processes: each has its target, or that of its owner's
// commands, and all of one target have the same.
func TestTogetherChangesNoOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		c := NewCensus("here", nil)
		c.fs = proc.FS{Root: t.TempDir()}
		c.listed = time.Now()
		var threads []profile.Thread
		for pid := 1; pid <= 30; pid++ {
			if r.IntN(3) > 0 {
				c.known[pid] = &identity{started: wire.SinceBoot() - time.Duration(r.IntN(20))*time.Second, asked: time.Now(),
					labels: profile.Labels{"service": fmt.Sprint(r.IntN(8))}, together: profile.Labels{"service": ShortLived}}
			}
			threads = append(threads, profile.Thread{PID: pid, TID: pid, Process: fmt.Sprint(r.IntN(8))})
		}
		apart, _ := c.Of(threads, Commands{Within: 10 * time.Second})
		together, brief := c.Of(threads, Commands{Within: 10 * time.Second, Together: true})
		became, folded := map[string]string{}, map[string]bool{}
		for i := range threads {
			was, is := apart[i].String(), together[i]["service"]
			if before, ok := became[was]; ok && before != is {
				t.Fatalf("of %s some are %s, some %s", was, before, is)
			}
			if became[was] = is; is == ShortLived {
				folded[was] = true
			} else if together[i].String() != was {
				t.Fatalf("%s became %s", was, is)
			}
		}
		if len(folded) != brief {
			t.Fatalf("%d targets are of commands, and %d are one", brief, len(folded))
		}
	}
}
