package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/test/testwait"
)

// process is an atys of its own, as a service manager runs it.
type process struct {
	*exec.Cmd
	ended chan struct{}
	mu    sync.Mutex // guards said
	said  bytes.Buffer
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// runs starts atys, which ends with the test at the latest.
func runs(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable() // which is atys, by that name: see TestMain
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, args...), ended: make(chan struct{})}
	p.Args[0] = "atys"
	p.Stderr, p.Stdout = p, p
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // ProcessState tells
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("%q said %s", args[0], p.log())
		}
	})
	return p
}

// says waits until a process has said something.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < testwait.Longest(t); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(p.log(), text) {
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("it ended: %s", p.log())
		default:
		}
	}
	t.Fatalf("it does not say %q: %s", text, p.log())
}

// ends tells a process to end, and how it did.
func (p *process) ends(t *testing.T, signals ...syscall.Signal) syscall.WaitStatus {
	t.Helper()
	for _, s := range signals {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-p.ended:
	case <-time.After(testwait.Longest(t)):
		t.Fatalf("it does not end: %s", p.log())
	}
	return p.ProcessState.Sys().(syscall.WaitStatus)
}

// records are what a process has logged, each a line of JSON.
func (p *process) records(t *testing.T) (messages []string) {
	t.Helper()
	for line := range strings.Lines(p.log()) {
		var r struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Time == "" || r.Level == "" || r.Msg == "" {
			t.Errorf("no record: %v: %s", err, line)
		}
		messages = append(messages, r.Msg)
	}
	return messages
}

// TestEndsWhole has each process that goes on end as service managers ask, with
// status 0, what it had under way kept, and all that it said as records.
func TestEndsWhole(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, listen, relayed := t.TempDir(), freeAddress(t), freeAddress(t)
	spoken := []string{"--log-format", "json", "--log-level", "info"}
	with := func(args ...string) []string { return append(args, spoken...) }
	server := runs(t, with("server", "--data", filepath.Join(dir, "server"), "--listen", listen)...)
	server.says(t, `"msg":"begun"`)
	t.Setenv(serverVariable, "http://"+listen)
	relay := runs(t, with("relay", "--listen", relayed)...)
	relay.says(t, `"msg":"begun"`)
	agent := runs(t, with("agent", "--data", filepath.Join(dir, "agent"), "--node", "n")...)
	becomes(t, "central", "get", "relays")
	agent.says(t, `"msg":"ship to a relay"`)
	up := runs(t, with("up", "--data", filepath.Join(dir, "up"), "--listen", freeAddress(t))...)
	up.says(t, `"msg":"begun"`)
	becomes(t, "n", "query", "by", "node", "--from", "-5m")
	for _, p := range []*process{up, agent, relay, server} { // who ships goes first
		if status := p.ends(t, syscall.SIGTERM); !status.Exited() || status.ExitStatus() != 0 {
			t.Errorf("%s ended with %v: %s", p.Args[1], status, p.log())
		}
		said := fmt.Sprint(p.records(t))
		if !strings.Contains(said, "begun") || !strings.Contains(said, "ending: ") || !strings.HasSuffix(said, "ended]") {
			t.Errorf("%s said %s", p.Args[1], said)
		}
	}
	for _, of := range []string{"agent", "up"} {
		if waiting, err := filepath.Glob(filepath.Join(dir, of, "spool", "*.bundle")); err != nil || len(waiting) > 0 {
			t.Errorf("left in the spool of %s: %q, %v", of, waiting, err)
		}
	}
}

// TestEndsWithoutServer keeps what nobody takes, and does not wait for long; a
// second signal has it wait for nothing.
func TestEndsWithoutServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // whose connections stand, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for _, test := range []struct {
		name   string
		twice  bool
		status int
		signal syscall.Signal
	}{{"once", false, 0, -1}, {"twice", true, -1, syscall.SIGTERM}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			p := runs(t, "agent", "--server", "http://"+silent.Addr().String(), "--data", data, "--log-format", "text", "--log-level", "debug")
			p.says(t, "sampling has begun")
			waiting := func() []string {
				all, err := filepath.Glob(filepath.Join(data, "spool", "*.bundle"))
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			for began := time.Now(); len(waiting()) == 0 && time.Since(began) < testwait.Longest(t); {
				time.Sleep(100 * time.Millisecond)
			}
			before, began := len(waiting()), time.Now()
			var status syscall.WaitStatus
			if test.twice {
				if err := p.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				p.says(t, "msg=\"ending: ")
			}
			status = p.ends(t, syscall.SIGTERM)
			if status.ExitStatus() != test.status || status.Signal() != test.signal {
				t.Errorf("it ended with status %d, signal %d", status.ExitStatus(), status.Signal())
			}
			if took := time.Since(began); !test.twice && took > 28*time.Second { // a request may take 30 s
				t.Errorf("that took %v", took)
			}
			if after := len(waiting()); before == 0 || after < before || !test.twice && after == before {
				t.Errorf("%d bundles wait, %d before it was to end", after, before)
			}
		})
	}
}

// TestLogRefusals refuses formats and levels that there are not.
func TestLogRefusals(t *testing.T) {
	for typedLine, want := range map[string]string{
		"server --log-format xml": "want text or json", "up --log-level loud": "want debug, info, warn, error",
	} {
		if printed, status := typed(t, strings.Fields(typedLine)...); status != exitUsage || !strings.Contains(printed, want) {
			t.Errorf("%s: %d, %s", typedLine, status, printed)
		}
	}
}
