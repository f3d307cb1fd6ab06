//go:build kernels

package kernels

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
)

// series are the kernels to boot: the oldest one that the README promises.
var series = [...]string{"6.1"}

// check is a command and what must be true of its result. Without anything
// set, the command must exit with 0.
type check struct {
	command string
	stdout  string // regular expression
	status  string // where it is not "exit status 0"
}

// groundChecks ask for what atys stands on, before atys itself runs.
func groundChecks(release string) []check {
	return []check{
		{command: "uname", stdout: "^" + regexp.QuoteMeta(release) + "\n$"},
		{command: "cat /proc/uptime", stdout: `^[0-9.]+ [0-9.]+\n$`},
		{command: "cat /proc/mounts", stdout: `(?s)/proc proc .*/sys sysfs .*/dev devtmpfs .*/sys/kernel/tracing tracefs .*/sys/fs/cgroup cgroup2 .*/sys/fs/bpf bpf .*/tmp tmpfs `},
		{command: "ls /sys/kernel/btf", stdout: `^vmlinux\n$`},
		{command: "cat /sys/devices/system/cpu/online", stdout: `^0-1\n$`},
		{command: "cat /sys/devices/system/clocksource/clocksource0/current_clocksource", stdout: `^tsc`},
		{command: "cat /sys/kernel/tracing/events/sched/sched_switch/id", stdout: `^[0-9]+\n$`},
		{command: "cat /proc/sys/kernel/perf_event_paranoid", stdout: `^-?[0-9]+\n$`},
		{command: "probe", stdout: `btf task_struct [0-9]+ bytes\ncpu-clock counted .*\nbpf runs [1-9][0-9]* at`},
	}
}

// machineChecks ask whether the machine itself keeps its promises.
func machineChecks() []check {
	return []check{
		{command: "spin 60 &busy&", status: "signal: terminated"}, // at the end
		{command: "cat /proc/none", status: "exit status 1"},
		{command: "nothing", status: `not started: exec: "nothing": executable file not found in $PATH`},
		{command: "sleep 60", status: "timed out after 5s"},
		{command: "mkdir /sys/fs/cgroup/a"},
		// Fails unless $busy became the pid of the first command.
		{command: "write /sys/fs/cgroup/a/cgroup.procs $busy"},
		{command: "cat /sys/fs/cgroup/a/cgroup.procs", stdout: `^[0-9]+\n$`},
		{command: "cat /etc/given", stdout: `^package kernels\n`},
	}
}

func TestKernels(t *testing.T) {
	for _, s := range series {
		t.Run(s, func(t *testing.T) {
			kernel := fetch(t, s)
			runChecks(t, groundChecks(kernel.Release), VM{Kernel: kernel})
		})
	}
}

func TestMachine(t *testing.T) {
	runChecks(t, machineChecks(), VM{
		Kernel:         fetch(t, series[0]),
		Files:          map[string]string{"/etc/given": "cpio.go"},
		CommandTimeout: 5 * time.Second,
	})
}

// A machine that dies says so, with its last words and what it was doing.
func TestDeadMachine(t *testing.T) {
	kernel := fetch(t, series[0])
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		command string
		want    []string
	}{
		{"panic", time.Minute, "write /proc/sysrq-trigger c", []string{
			`during "write /proc/sysrq-trigger c"`, ErrNotDone.Error(), "sysrq triggered crash"}},
		{"hang", 15 * time.Second, "sleep 600", []string{
			`during "sleep 600"`, "did not power off in time", "Run /init as init process"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results, err := Run(context.Background(), VM{
				Kernel:   kernel,
				Commands: []string{"uname", tt.command},
				Timeout:  tt.timeout,
			})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
			if len(results) != 2 || results[0].Err() != nil || results[1].Status != Unfinished {
				t.Errorf("results %+v, want the first whole and the second unfinished", results)
			}
		})
	}
}

func fetch(t *testing.T, series string) Kernel {
	t.Helper()
	kernel, err := Fetch(t.Context(), series, "")
	if err != nil {
		t.Fatal(err)
	}
	return kernel
}

// runChecks boots once and checks each command in a subtest.
func runChecks(t *testing.T, checks []check, vm VM) {
	t.Helper()
	for _, c := range checks {
		vm.Commands = append(vm.Commands, c.command)
	}
	begin := time.Now()
	results, err := Run(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d commands in %v", vm.Kernel.Release, len(results), time.Since(begin).Round(time.Millisecond))
	for i, c := range checks {
		t.Run(c.command, func(t *testing.T) {
			r := results[i]
			if c.status == "" {
				c.status = "exit status 0"
			}
			if r.Status != c.status {
				t.Errorf("status %q, want %q; stderr %q", r.Status, c.status, r.Stderr)
			}
			if ok, err := regexp.Match(c.stdout, r.Stdout); err != nil || !ok {
				t.Errorf("stdout %q does not match %q (%v)", r.Stdout, c.stdout, err)
			}
			if r.Dropped != 0 {
				t.Errorf("%d bytes of output were dropped", r.Dropped)
			}
			t.Logf("%v: %.200s", r.Duration.Round(time.Millisecond), bytes.TrimSpace(r.Stdout))
		})
	}
}
