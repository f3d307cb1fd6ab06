package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/doctor"
	"atys.dev/atys/test/testwait"
)

// examined types atys doctor --server, and gives what it says of each thing.
func examined(t *testing.T, args ...string) (checks map[string]doctor.Check, works bool) {
	t.Helper()
	printed, status := typed(t, append([]string{"doctor", "--json", "--server"}, args...)...)
	var r doctor.Report
	if err := json.Unmarshal([]byte(printed), &r); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	if r.Works != (status == 0) {
		t.Errorf("works: %v, and it exits with %d", r.Works, status)
	}
	checks = map[string]doctor.Check{}
	for _, c := range r.Checks {
		checks[c.Name] = c
	}
	return checks, r.Works
}

// TestDoctorServer examines servers that are there, that are not, and that are
// something else.
func TestDoctorServer(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	other, tokens := filepath.Join(dir, "other"), filepath.Join(dir, "tokens")
	for _, role := range []string{"reader", "agent"} {
		if printed, status := typed(t, "token", "--tokens", tokens, "--role", role, "-o", filepath.Join(dir, role)); status != 0 {
			t.Fatal(printed)
		}
	}
	if printed, status := typed(t, "token", "--tokens", other, "--role", "reader", "-o", filepath.Join(dir, "stranger")); status != 0 {
		t.Fatal(printed)
	}
	plain, secret, relayed := freeAddress(t), freeAddress(t), freeAddress(t)
	served := runs(t, "server", "--data", filepath.Join(dir, "plain"), "--listen", plain)
	served.says(t, "answers")
	runs(t, "server", "--data", filepath.Join(dir, "secret"), "--listen", secret, "--tokens", tokens, "--tls-cert", cert, "--tls-key", key).says(t, "answers")
	runs(t, "relay", "--server", "http://"+plain, "--listen", relayed).says(t, "takes windows")
	becomes(t, "central", "get", "relays", "--server", "http://"+plain)
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	for _, test := range []struct {
		name  string
		typed []string
		check string
		state doctor.State
		said  string
		works bool
	}{
		{"all is well", []string{"http://" + plain}, "protocol", doctor.OK, "1, version", true},
		{"its clock", []string{"http://" + plain}, "clock", doctor.OK, "±", true},
		{"its disk", []string{"http://" + plain}, "disk", doctor.OK, "GB are free", true},
		{"its relay", []string{"http://" + plain}, "without agents", doctor.Limited, "relay nothing", true},
		{"over TLS", []string{"https://" + secret, "--tls-ca", cert, "--token-file", filepath.Join(dir, "reader")}, "token", doctor.OK, "reader of tenant default", true},
		{"no authority", []string{"https://" + secret, "--token-file", filepath.Join(dir, "reader")}, "reachable", doctor.Missing, "--tls-ca", false},
		{"a stranger's token", []string{"https://" + secret, "--tls-ca", cert, "--token-file", filepath.Join(dir, "stranger")}, "token", doctor.Missing, "not known here", false},
		{"an agent's token", []string{"https://" + secret, "--tls-ca", cert, "--token-file", filepath.Join(dir, "agent")}, "token", doctor.Missing, "your role is agent", false},
		{"http for https", []string{"http://" + secret}, "reachable", doctor.Missing, "--server https://" + secret, false},
		{"https for http", []string{"https://" + plain}, "reachable", doctor.Missing, "--server http://" + plain, false},
		{"dead", []string{"http://" + freeAddress(t)}, "reachable", doctor.Missing, "connection refused", false},
		{"something else", []string{stranger.URL}, "reachable", doctor.Missing, "something else", false},
		{"a relay", []string{"http://" + relayed}, "protocol", doctor.Missing, "it is a relay", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			checks, works := examined(t, test.typed...)
			c, ok := checks[test.check]
			if said := c.Found + " " + c.Cost + " " + c.Mend; !ok || works != test.works || c.State != test.state || !strings.Contains(said, test.said) {
				t.Errorf("works: %v; %+v", works, checks)
			}
		})
	}
	if printed, status := typed(t, "doctor", "--server", "http://"+plain); status != 0 || !strings.HasSuffix(printed, "\nthe server can be asked\n") {
		t.Errorf("%d: %s", status, printed)
	}
	if printed, status := typed(t, "doctor", "--server", "http://"+plain, "-p", "1"); status != exitUsage {
		t.Errorf("with a process: %d, %s", status, printed)
	}
	t.Run("agents", func(t *testing.T) { examineAgents(t, "http://"+plain, served) })
}

// examineAgents has an agent come, be killed, and the server be killed.
func examineAgents(t *testing.T, server string, served *process) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	agent := runs(t, "agent", "--server", server, "--data", t.TempDir(), "--node", "n1")
	becomes(t, "1 of 1", "doctor", "--server", server)
	agent.ends(t, syscall.SIGKILL)
	becomes(t, "silent: n1", "doctor", "--server", server)
	if checks, works := examined(t, server); !works || checks["connected"].State != doctor.Limited || !strings.Contains(checks["connected"].Mend, "systemctl restart atys-agent") {
		t.Errorf("works: %v; %+v", works, checks)
	}
	served.ends(t, syscall.SIGSTOP, syscall.SIGKILL)
	began := time.Now()
	if checks, works := examined(t, server); works || checks["reachable"].State != doctor.Missing || time.Since(began) > testwait.Longest(t) {
		t.Errorf("works: %v; %+v", works, checks)
	}
}

// TestOneCommandOnce shows a command that mends several things once.
func TestOneCommandOnce(t *testing.T) {
	const setcap = "sudo setcap cap_bpf,cap_perfmon=ep /opt/atys-of-a-release/bin/atys"
	report := doctor.Report{Checks: []doctor.Check{
		{Group: "privileges", Name: "CAP_BPF", State: doctor.Missing, Found: "not held", Mend: setcap},
		{Group: "privileges", Name: "CAP_PERFMON", State: doctor.Missing, Found: "not held", Mend: setcap},
		{Group: "recording", Name: "maps", State: doctor.Missing, Found: "no", Mend: setcap},
	}}
	var out bytes.Buffer
	if err := printReport(&out, report, [2]string{"", ""}, false); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, setcap) != 1 || strings.Count(text, "fix: the same command as for CAP_BPF") != 2 {
		t.Errorf("it says\n%s", text)
	}
}
