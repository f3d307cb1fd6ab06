// Package deploy runs what is in deploy: units, under a systemd of their own, and the image's program, in a root like the image's.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/doctor"
	"atys.dev/atys/test/testwait"
	"atys.dev/atys/test/vacant"
)

const deployed, guide = "../../deploy/systemd", "../../docs/guide/"

// daemons are the units, by the command that each runs.
var daemons = []string{"server", "relay", "agent", "up"}

func unitOf(daemon string) string { return "atys-" + daemon }

// setting reads all that a unit says for a key.
func setting(t *testing.T, daemon, key string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, unitOf(daemon)+".service"))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			values = append(values, value)
		}
	}
	return strings.Join(values, " ")
}

// needed finds a program that "make deps" installs.
func needed(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: make deps does", program)
		}
	}
}

// TestMain builds atys once, as the Makefile does, where others may run it.
func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

// program is atys.
var program string

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "atys-deploy")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	program = filepath.Join(dir, "atys")
	c := exec.Command("go", "build", "-trimpath", "-o", program, "atys.dev/atys/cmd/atys")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build atys: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// TestUnitsAreRight has systemd read them, and atys what they say to it.
func TestUnitsAreRight(t *testing.T) {
	needed(t, "systemd-analyze")
	dir := t.TempDir()
	for _, daemon := range daemons {
		name := unitOf(daemon) + ".service"
		text, err := os.ReadFile(filepath.Join(deployed, name))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/atys"), []byte(program))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", filepath.Join(dir, name)).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		env, err := os.ReadFile(filepath.Join(deployed, daemon+".env"))
		if err != nil {
			t.Fatal(err)
		}
		variable := "ATYS_" + strings.ToUpper(daemon) + "_FLAGS"
		flags := regexp.MustCompile(`(?m)^(?:# )?`+variable+`=(.*)$`).FindAllStringSubmatch(string(env), -1)
		line, ok := strings.CutSuffix(setting(t, daemon, "ExecStart"), " $"+variable)
		if len(flags) == 0 || !ok {
			t.Fatalf("%s has no flags in %s.env", name, daemon)
		}
		for _, more := range flags {
			args := strings.Fields(line + " " + more[1])[1:]
			if out, err := exec.Command(program, append(args, "--help")...).CombinedOutput(); err != nil {
				t.Errorf("atys %s: %v\n%s", args, err, out)
			}
		}
	}
}

// TestCapabilitiesAreThoseOfTheGuide: the agent's unit gives what the guide has
// setcap give for everyday use, as that of up does; the others give nothing.
func TestCapabilitiesAreThoseOfTheGuide(t *testing.T) {
	text, err := os.ReadFile(guide + "privileges.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`setcap (\S+)=ep`).FindSubmatch(text)
	if command == nil {
		t.Fatal("the guide has no setcap")
	}
	want := strings.ToUpper(strings.ReplaceAll(string(command[1]), ",", " "))
	for _, key := range []string{"AmbientCapabilities", "CapabilityBoundingSet"} {
		for _, daemon := range []string{"agent", "up"} {
			if got := setting(t, daemon, key); got != want {
				t.Errorf("%s of %s is %q, and the guide has %q", key, daemon, got, want)
			}
		}
		for _, daemon := range []string{"server", "relay"} {
			if got := setting(t, daemon, key); got != "" {
				t.Errorf("%s of the %s is %q", key, daemon, got)
			}
		}
	}
}

// manager is a systemd that was booted.
type manager struct {
	pid  int
	root string // its files
}

// boot boots one, which ends with the test.
func boot(t *testing.T) *manager {
	t.Helper()
	needed(t, "systemd-analyze", "unshare", "nsenter")
	if err := exec.Command("unshare", "--pid", "--mount", "--cgroup", "--fork", "true").Run(); err != nil {
		t.Skipf("no namespaces can be made here: %v", err)
	}
	dir, err := os.MkdirTemp("", "atys-units")
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c := exec.Command("./boot.sh", dir, program, deployed)
	c.Stdout, c.Stderr = &said, &said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // and with it, what it booted
		_ = c.Wait()
		for began := time.Now(); os.Remove(dir) != nil && time.Since(began) < time.Minute; {
			time.Sleep(50 * time.Millisecond)
		}
		leave(t, filepath.Base(dir))
	})
	m := &manager{}
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(50 * time.Millisecond) {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		if m.pid, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
			continue
		}
		m.root = fmt.Sprintf("/proc/%d/root", m.pid)
		if out, err := m.run("systemctl", "is-active", "waits.target"); err == nil && out == "active" {
			return m
		}
	}
	t.Fatalf("systemd does not come up: %s", said.String())
	return nil
}

// leave removes the cgroups that a systemd was in, once all of it has ended.
func leave(t *testing.T, name string) {
	t.Helper()
	var left []string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		left = nil
		for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, found...)
		}
		if len(left) == 0 {
			return
		}
		_ = exec.Command("find", append(left, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")...).Run() // what is left is tried again
	}
	t.Errorf("cgroups are left: %q", left)
}

// run runs a program inside.
func (m *manager) run(args ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(m.pid), "-m", "-p", "-i", "-u", "-C", "-r", "-w"}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (m *manager) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.run(args...)
	if err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
	return out
}

func (m *manager) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(m.root+path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// log is what a unit's process has said.
func (m *manager) log(daemon string) string {
	text, err := os.ReadFile(m.root + "/run/" + unitOf(daemon) + ".log")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// show gives a property of a unit.
func (m *manager) show(t *testing.T, daemon, property string) string {
	t.Helper()
	return m.must(t, "systemctl", "show", "--value", "-p", property, unitOf(daemon))
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool, more func() string) {
	t.Helper()
	testwait.Until(t, what, holds, more)
}

// healthy tells whether somebody answers.
func healthy(address string) bool {
	answer, err := http.Get("http://" + address + "/healthz")
	return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := vacant.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// TestUnits runs them: server and relay as they are; of the agent, which does not
// profile a machine from a process namespace like this one, atys doctor, which
// tries all that it does; and an agent of the same user and rights outside.
func TestUnits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	needed(t, "setpriv")
	m := boot(t)
	listen, relayed := freeAddress(t), freeAddress(t)
	m.write(t, "/etc/atys/server.env", "ATYS_SERVER_FLAGS=--listen "+listen+"\n")
	m.must(t, "systemctl", "start", unitOf("server"))
	eventually(t, "the server answers", func() bool { return healthy(listen) }, func() string { return m.log("server") })
	token, err := os.ReadFile(m.root + "/var/lib/atys/operator.token")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"relay", "agent"} {
		m.write(t, "/etc/atys/"+of+".token", string(token))
	}
	m.must(t, "chown", "atys", "/etc/atys/relay.token")
	m.write(t, "/etc/atys/relay.env", "ATYS_SERVER=http://"+listen+"\nATYS_RELAY_FLAGS=--token-file /etc/atys/relay.token --listen "+relayed+"\n")
	m.must(t, "systemctl", "start", unitOf("relay"))
	eventually(t, "the relay answers", func() bool { return healthy(relayed) }, func() string { return m.log("relay") })

	t.Run("Agent", func(t *testing.T) { m.agentsRights(t) })
	t.Run("Up", func(t *testing.T) {
		if c := m.examine(t, "up", "")["sampler: a window is taken"]; c.State != doctor.OK {
			t.Errorf("%+v", c)
		}
	})
	t.Run("Outside", func(t *testing.T) { outside(t, listen, string(token)) })
	t.Run("Restart", func(t *testing.T) {
		before := m.show(t, "server", "MainPID")
		m.must(t, "kill", "-9", before)
		eventually(t, "the server is back", func() bool { return m.show(t, "server", "NRestarts") == "1" && healthy(listen) }, func() string { return m.log("server") })
	})
	for _, daemon := range []string{"relay", "server"} {
		began := time.Now()
		m.must(t, "systemctl", "stop", unitOf(daemon))
		result, status := m.show(t, daemon, "Result"), m.show(t, daemon, "ExecMainStatus")
		if result != "success" || status != "0" || !strings.HasSuffix(m.log(daemon), "msg=ended\n") {
			t.Errorf("%s ended with %s, status %s, after %v: %s", daemon, result, status, time.Since(began), m.log(daemon))
		}
	}
}

// examine has atys doctor run in place of a unit's command, and gives what it says.
func (m *manager) examine(t *testing.T, daemon, settings string) map[string]doctor.Check {
	t.Helper()
	m.write(t, "/etc/systemd/system/"+unitOf(daemon)+".service.d/doctor.conf",
		"[Service]\nType=oneshot\nRestart=no\nExecStart=\nExecStart=/usr/local/bin/atys doctor --json\n"+settings)
	m.write(t, "/etc/atys/"+daemon+".env", "ATYS_SERVER=http://127.0.0.1:1\n")
	m.write(t, "/run/"+unitOf(daemon)+".log", "")
	m.must(t, "systemctl", "daemon-reload")
	_, _ = m.run("systemctl", "start", unitOf(daemon)) // it fails where nothing can be recorded
	var report doctor.Report
	if err := json.Unmarshal([]byte(m.log(daemon)), &report); err != nil {
		t.Fatalf("doctor: %v: %s", err, m.log(daemon))
	}
	checks := map[string]doctor.Check{}
	for _, c := range report.Checks {
		checks[c.Name] = c
	}
	return checks
}

// agentsRights tries what the agent's unit allows.
func (m *manager) agentsRights(t *testing.T) {
	checks := m.examine(t, "agent", "")
	for _, name := range []string{"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_SYSLOG", "unwinder: maps and events", "unwinder: follows processes",
		"sampler: programs and events", "sampler: a window is taken", "sleeping threads can be read", "kernel symbols", "locked memory"} {
		if checks[name].State != doctor.OK {
			t.Errorf("%s: %+v", name, checks[name])
		}
	}
	for setting, lacks := range map[string]string{ // what the unit says of what it leaves out
		"ProtectKernelTunables=yes": "kernel symbols", "ProtectKernelLogs=yes": "CAP_SYSLOG", "PrivateUsers=yes": "user namespace",
		"SystemCallFilter=~bpf": "unwinder: maps and events",
	} {
		if c := m.examine(t, "agent", setting+"\nCPUQuota=\n")[lacks]; c.State == doctor.OK || c.State == "" {
			t.Errorf("with %s %s is %+v", setting, lacks, c)
		}
	}
}

// outside profiles this machine with the rights of the agent's unit.
func outside(t *testing.T, server, token string) {
	const nobody = 65534
	dir := filepath.Dir(program)
	data, file := filepath.Join(dir, "agent"), filepath.Join(dir, "agent.token")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, nobody, nobody), os.WriteFile(file, []byte(token), 0o400), os.Chown(file, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	var rights []string
	for _, name := range strings.Fields(setting(t, "agent", "AmbientCapabilities")) {
		rights = append(rights, "+"+strings.ToLower(strings.TrimPrefix(name, "CAP_")))
	}
	set := "-all," + strings.Join(rights, ",")
	c := exec.Command("setpriv", "--reuid", strconv.Itoa(nobody), "--regid", strconv.Itoa(nobody), "--clear-groups", "--no-new-privs",
		"--inh-caps="+set, "--ambient-caps="+set, "--bounding-set="+set,
		program, "agent", "--server", "http://"+server, "--data", data, "--token-file", file, "--node", "outside", "--log-format", "text", "--log-level", "info")
	c.Env = []string{"XDG_CACHE_HOME=" + data, "PATH=/usr/bin:/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer callKernel(t)()
	missing := []string{`"kernel"`, "do_syscall_64", "deploy.callKernel"}
	eventually(t, "windows with functions of the kernel and of root's processes come", func() bool {
		out, err := exec.Command(program, "query", "top", "--server", "http://"+server, "--from", "-5m", "-n", "10000", "-o", "json").Output()
		missing = slices.DeleteFunc(missing, func(name string) bool { return err == nil && bytes.Contains(out, []byte(name)) })
		return len(missing) == 0
	}, func() string { return fmt.Sprintf("none has %q", missing) })
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || !strings.HasSuffix(said.String(), "msg=ended\n") {
		t.Errorf("it ended with %v: %s", err, said.String())
	}
	if left, err := filepath.Glob(filepath.Join(data, "spool", "*.bundle")); err != nil || len(left) > 0 {
		t.Errorf("left in the spool: %q, %v", left, err)
	}
}

// callKernel keeps this process of root's busy in the kernel until it is stopped.
func callKernel(t *testing.T) (stop func()) {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for page := make([]byte, os.Getpagesize()); ; {
			select {
			case <-ended:
				return
			default:
				_, _ = zeros.Read(page)
			}
		}
	}()
	return func() {
		close(ended)
		<-stopped
		_ = zeros.Close()
	}
}
