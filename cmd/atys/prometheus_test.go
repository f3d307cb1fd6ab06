package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/test/testwait"
)

const deployed = "../../deploy/prometheus"

// TestPrometheus has a real Prometheus ask a server and an agent, with the
// configuration, the rules and the dashboard that are deployed.
func TestPrometheus(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: make deps does", program)
		}
	}
	dir := t.TempDir()
	f := serverFlags{data: filepath.Join(dir, "data"), listenFlags: listenFlags{listen: freeAddress(t)}, retention: upkeep.DefaultRetention}
	configure(t, dir, f.listen)
	if out, err := exec.Command("promtool", "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	if os.Geteuid() != 0 {
		t.Skip("profiling needs root")
	}
	ctx, cancel := context.WithCancel(t.Context())
	up := began(t, func() error { return up(ctx, f, budgetFlags{}, logger(false)) })
	agent := began(t, func() error {
		return runAgent(ctx, agentFlags{clientFlags: clientFlags{server: "http://" + f.listen}, data: filepath.Join(dir, "agent"), node: "other", spool: 10, metrics: listenFlags{listen: "127.0.0.1:0"}}, logger(false))
	})
	defer func() {
		cancel()
		for _, ended := range []chan error{up, agent} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	address := prometheusOf(t, dir)
	for _, expression := range []string{
		`atys_function_cpu_seconds_total{function!="",service!=""} > 0`,
		`atys_function_cpu_seconds_total{node="other"} > 0`, // found by discovery
		`atys_target_cpu_seconds_total > 0`,
		`atys_agent_windows_total{fate="shipped"} > 0`,
		`atys_agent_frequency_hertz{task="builtin"} == 19`,
		`atys_server_windows_total > 0`,
		`atys_server_agents{state="heard"} == 2`,
		`atys_server_answer_seconds_count > 0`,
		`process_cpu_seconds_total{job="atys-agents"}`,
		`rate(atys_target_cpu_seconds_total[30s]) >= 0`,
		`{__name__="service:atys_cpu_cores:rate5m"}`,
		`{__name__="service_function:atys_cpu_share:ratio5m"} <= 1.5`,
	} {
		answered(t, address, expression)
	}
	for _, expression := range dashboardExpressions(t) {
		if _, err := ask(address, expression); err != nil {
			t.Errorf("the dashboard asks %s: %v", expression, err)
		}
	}
	lint := exec.Command("promtool", "check", "metrics")
	page, err := http.Get("http://" + f.listen + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	lint.Stdin = page.Body
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// TestRules has promtool hold the deployed rules against what they are to say.
func TestRules(t *testing.T) {
	if out, err := exec.Command("promtool", "test", "rules", "testdata/rules_test.yml").CombinedOutput(); err != nil {
		t.Errorf("promtool, which make deps installs: %v\n%s", err, out)
	}
}

func began(t *testing.T, run func() error) chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	return ended
}

// configure writes the deployed configuration, for a server at an address, and
// more often asked.
func configure(t *testing.T, dir, address string) {
	t.Helper()
	for _, name := range []string{"prometheus.yml", "rules.yml"} {
		data, err := os.ReadFile(filepath.Join(deployed, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("127.0.0.1:4300", address, "15s", "1s", "refresh_interval: 30s", "refresh_interval: 1s").Replace(string(data))
		if name == "prometheus.yml" && strings.Count(text, address) != 2 {
			t.Fatalf("the configuration does not name the server twice:\n%s", text)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// prometheusOf runs Prometheus until the test ends.
func prometheusOf(t *testing.T, dir string) (address string) {
	t.Helper()
	address = freeAddress(t)
	c := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+address)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		_ = c.Wait()
	})
	return address
}

// ask counts the series that Prometheus answers with.
func ask(address, expression string) (int, error) {
	answer, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var found struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		return 0, err
	}
	if found.Status != "success" {
		return 0, fmt.Errorf("%s", found.Error)
	}
	return len(found.Data.Result), nil
}

// answered waits until an expression has an answer.
func answered(t *testing.T, address, expression string) {
	t.Helper()
	var last error
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(200 * time.Millisecond) {
		n, err := ask(address, expression)
		if n > 0 {
			return
		}
		last = err
	}
	t.Errorf("no answer to %s: %v", expression, last)
}

// dashboardExpressions are what the dashboard asks, with its variables filled in.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deployed, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, strings.NewReplacer("$service", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	if len(all) < 8 {
		t.Fatalf("the dashboard asks %d things", len(all))
	}
	return all
}
