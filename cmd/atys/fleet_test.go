package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/test/testwait"
)

// typed runs a command as typed, and gives what it prints.
func typed(t *testing.T, args ...string) (printed string, status int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(r) // what was printed before an error is what there is
		read <- string(text)
	}()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	status = run(args)
	os.Stdout, os.Stderr = stdout, stderr
	w.Close()
	return <-read, status
}

// becomes types a command until it prints something.
func becomes(t *testing.T, want string, args ...string) {
	t.Helper()
	var printed string
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(200 * time.Millisecond) {
		if printed, _ = typed(t, args...); strings.Contains(printed, want) {
			return
		}
	}
	t.Fatalf("%q prints no %q: %s", args, want, printed)
}

// TestFleet has a server, an agent of its own process and one of another node do
// what is typed.
func TestFleet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	busy := filepath.Join(t.TempDir(), "atys-busy") // of which there is no other
	if err := exec.CommandContext(t.Context(), "cp", "/bin/sh", busy).Run(); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), busy, "-c", "while :; do :; done").Start(); err != nil {
		t.Fatal(err)
	}
	f := serverFlags{retention: upkeep.DefaultRetention, data: t.TempDir(), listenFlags: listenFlags{listen: freeAddress(t)}}
	t.Setenv(serverVariable, "http://"+f.listen)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- up(ctx, f, budgetFlags{}, logger(false)) }()
	becomes(t, "connected", "get", "agents")
	go func() { ended <- runAgent(ctx, agentFlags{data: t.TempDir(), node: "other", spool: 10}, logger(false)) }()
	becomes(t, "other", "get", "agents")
	becomes(t, "atys-busy", "get", "targets")

	file := filepath.Join(t.TempDir(), "busy.yaml")
	text := "kind: Profile\nname: busy\nselect: '{executable=\"atys-busy\"}'\nfrequency: 99\nwindow: 1s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if printed, status := typed(t, "apply", "-f", file); status != 0 || printed != "profile busy applied\n" {
		t.Errorf("apply: %d, %s", status, printed)
	}
	becomes(t, "2/2", "get", "profile", "busy")
	becomes(t, "phase: running", "describe", "profile", "busy")

	folded := filepath.Join(t.TempDir(), "busy.folded")
	printed, status := typed(t, "record", "--server", os.Getenv(serverVariable), "--select", `{executable="atys-busy"}`, "--instances", "1", "-d", "2s", "-F", "499", "-o", folded)
	if status != 0 || !strings.Contains(printed, "1 of 2 targets were recorded") {
		t.Errorf("record: %d, %s", status, printed)
	}
	if recorded, err := os.ReadFile(folded); err != nil || strings.Count(string(recorded), ";") < 10 {
		t.Errorf("%v: recorded %.500s", err, recorded)
	}
	recordWithPerf(t)
	calibrateFleet(t, `{executable="atys-busy"}`)
	var profiles []struct{ Phase string }
	printed, _ = typed(t, "get", "profiles", "-o", "json")
	if err := json.Unmarshal([]byte(printed), &profiles); err != nil || len(profiles) != 1 {
		t.Errorf("%v: profiles %s, want busy alone", err, printed)
	}
	askAbout(t, `{executable="atys-busy"}`)
	if printed, status := typed(t, "debug", "upload", busy); status != 0 || !strings.Contains(printed, "executable of build-id") {
		t.Errorf("debug upload: %d, %s", status, printed)
	}
	if printed, status := typed(t, "debug", "list"); status != 0 || !strings.Contains(printed, "executable") {
		t.Errorf("debug list: %d, %s", status, printed)
	}
	if printed, status := typed(t, "delete", "profile", "busy"); status != 0 || printed != "profile busy deleted\n" {
		t.Errorf("delete: %d, %s", status, printed)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// recordWithPerf has agents record with another profiler.
func recordWithPerf(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("perf"); err != nil {
		t.Log("no perf here: make deps installs it")
		return
	}
	folded := filepath.Join(t.TempDir(), "perf.folded")
	printed, status := typed(t, "record", "--server", os.Getenv(serverVariable), "--select", `{executable="atys-busy",node="other"}`, "--kernel", "perf", "-d", "3s", "-F", "199", "-o", folded)
	if status != 0 || !strings.Contains(printed, "recorded with perf at 199 Hz") {
		t.Errorf("record with perf: %d, %s", status, printed)
	}
	if recorded, err := os.ReadFile(folded); err != nil || !strings.Contains(string(recorded), "atys-busy") {
		t.Errorf("%v: recorded %.500s", err, recorded)
	}
}

// calibrateFleet has agents record what is calibrated by, and applies what is proposed.
func calibrateFleet(t *testing.T, selector string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proposed.yaml")
	printed, status := typed(t, "calibrate", "--server", os.Getenv(serverVariable), "-d", "12s", "-F", "499", "--window", "1s", "--rounds", "0", "--replays", "1", "--yaml", file, selector)
	for _, want := range []string{"atys: recording as profile calibrate-", "samples in ", "What servers add up does not tell which thread", "candidates that no other one is cheaper and better than", "A sample cost", "name: atys-busy"} {
		if status != 0 || !strings.Contains(printed, want) {
			t.Fatalf("calibrate: %d, no %q in %s", status, want, printed)
		}
	}
	if printed, status := typed(t, "apply", "-f", file); status != 0 || printed != "profile atys-busy applied\n" {
		t.Errorf("apply what is proposed: %d, %s", status, printed)
	}
	if printed, status := typed(t, "delete", "profile", "atys-busy"); status != 0 {
		t.Errorf("delete: %d, %s", status, printed)
	}
}

// askAbout asks every kind of question about a program that was recorded.
func askAbout(t *testing.T, selector string) {
	t.Helper()
	html := filepath.Join(t.TempDir(), "busy.html")
	for _, test := range []struct {
		typed []string
		want  string
	}{
		{[]string{"query", "top", selector, "-n", "3"}, "95% OF SERVICE"},
		{[]string{"query", "top", selector, "-o", "json"}, `"coverage"`},
		{[]string{"query", "by", "node", selector}, "other"},
		{[]string{"query", "by", "thread", selector, "-o", "csv"}, "atys-busy,"},
		{[]string{"query", "series", selector, "--step", "10s", "--task", "busy"}, "START"},
		{[]string{"query", "labels", selector}, "executable  atys-busy"},
		{[]string{"query", "merge", selector, "-o", html}, "windows"},
		{[]string{"query", "merge", selector}, ";"},
		{[]string{"query", "merge", selector, "-o", "json"}, `"coverage"`},
		{[]string{"query", "merge", `{service="nobody"}`, "-o", "json"}, `"stacks": []`},
		{[]string{"query", "diff", selector, selector, "--task", "busy"}, "before:"},
		{[]string{"query", "top", `{service="nobody"}`}, "nothing is kept of it"},
	} {
		printed, status := typed(t, test.typed...)
		if status != 0 || !strings.Contains(printed, test.want) {
			t.Errorf("%q: %d, %s; want %q", test.typed, status, printed, test.want)
		}
	}
	if printed, status := typed(t, "query", "merge", `{service='nobody'}`, "-o", html+".html"); status == 0 || !strings.Contains(printed, "was not written") {
		t.Errorf("a file of nothing: %d, %s", status, printed)
	}
	if drawn, err := os.ReadFile(html); err != nil || !strings.Contains(string(drawn), "<title>") {
		t.Errorf("%v: %.200s", err, drawn)
	}
}

func TestFleetRefusals(t *testing.T) {
	t.Setenv(serverVariable, "")
	for _, test := range []struct{ typed, want string }{
		{"apply", "-f: name a file"},
		{"apply -f /nowhere.yaml", "no such file"},
		{"get", "missing kind or name"},
		{"get pods", "there are profiles, agents, targets and relays"},
		{"get agents -o xml", "want wide, json, yaml"},
		{"get agents --server ftp://x", "want an address such as"},
		{"get agents --server http://127.0.0.1:1", "does not answer"},
		{"watch agents --server http://127.0.0.1:1", "does not answer"},
		{"describe agent", "missing kind or name"},
		{"describe agent n -o wide", "want yaml, json"},
		{"watch agents -o table", "want wide, json, yaml"},
		{"delete profile", "missing kind or name"},
		{"agent", "say whom to ship to"},
		{"agent --server http://127.0.0.1:1 --spool 0", "want 1 or more megabytes"},
		{"agent --server http://127.0.0.1:1 --label service=x", "agents find this out themselves"},
		{"relay", "say whom to pass windows on to"},
		{"relay --server http://127.0.0.1:1 --merge zone", "service has to be among the labels"},
		{"relay --server http://127.0.0.1:1 --listen 0.0.0.0:0", "can be reached from other machines"},
		{"relay --server http://127.0.0.1:1 --listen 127.0.0.1:0 --address foo", `--address "foo": want an address such as https://10.0.0.7:4310`},
		{"relay --server http://192.0.2.1:1 --listen 127.0.0.1:0", "which is each machine's own"},
		{"relay --server http://192.0.2.1:1 --listen 127.0.0.1:0 --address https://localhost:4310", "which is each machine's own"},
		{"debug upload", "name the files to send"},
		{"debug upload /nowhere --server http://127.0.0.1:1", "no such file"},
		{"debug list --server http://127.0.0.1:1", "does not answer"},
		{"query top {} {}", "one selector"},
		{"query top {service=} --server http://127.0.0.1:1", "does not answer"},
		{"query top --from tomorrow", `--from: "tomorrow"`},
		{"query top -o xml", "want one of json csv"},
		{"query series --step 0s", "want more than 0"},
		{"query by", "say by what"},
		{"query diff", "give two selectors"},
		{"query merge -o x.xyz", "want one of json csv"},
		{"record --select {} -d 1s", "go with --server"},
		{"record --server http://127.0.0.1:1 -a -d 1s", "--all does not go with --server"},
		{"record --server http://127.0.0.1:1", "say how long"},
		{"record --server http://127.0.0.1:1 -d 1s --kernel async-profiler", "give --allow-attach"},
		{"record --server http://127.0.0.1:1 -d 1s --kernel perf -e page-faults", "--event goes with --kernel bpf only"},
		{"record --server http://127.0.0.1:1 -d 1s --select {", "select: "},
		{"record --server http://127.0.0.1:1 -d 1s -o /tmp/x.folded", "does not answer"},
	} {
		printed, status := typed(t, strings.Fields(test.typed)...)
		if status == 0 || !strings.Contains(printed, test.want) {
			t.Errorf("%s: %d, %s; want %q", test.typed, status, printed, test.want)
		}
	}
}
