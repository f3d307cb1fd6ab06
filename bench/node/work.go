package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"atys.dev/atys/bench/background"
	"atys.dev/atys/bench/harness"
)

// testdata is where the services are: this runs at the top of the tree.
const testdata = "bench/node/testdata"

// A part of the services is of each language, in hundredths; the rest is in C.
// goBuilds are how many programs those in Go are: services often share one.
const (
	inGo, inPython, inNode, inJava = 20, 30, 6, 4
	goBuilds                       = 4
)

// node is the work of a machine that many small services run on.
type node struct {
	dir      string
	share    int // of a CPU that each service takes, in thousandths
	services []*exec.Cmd
	idle     background.Idle
}

// startNode starts all services, and processes that do nothing. What was started
// ends with ctx, and wait waits for that.
func startNode(ctx context.Context, dir string, services, idle int, cpus float64) (*node, error) {
	n := &node{dir: dir, share: int(max(1, 1000*cpus/float64(services)))}
	parts := []struct {
		language string
		count    int
		program  func(ctx context.Context, i int) ([]string, error)
	}{
		{"go", services * inGo / 100, n.goService},
		{"python", services * inPython / 100, n.script("work.py", "python3", ".py")},
		{"node", services * inNode / 100, n.script("work.js", "node", ".js")},
		{"java", services * inJava / 100, n.javaService},
		{"c", 0, n.cService},
	}
	rest := services
	for i := range parts {
		p := &parts[i]
		if p.count = min(p.count, rest); p.language == "c" {
			p.count = rest
		}
		rest -= p.count
		for k := range p.count {
			command, err := p.program(ctx, k)
			if err == nil {
				err = n.start(ctx, fmt.Sprintf("%s-%02d", p.language, k), command)
			}
			if err != nil {
				return n, fmt.Errorf("service %d in %s: %w", k, p.language, err)
			}
		}
	}
	var err error
	n.idle, err = background.StartIdle(ctx, dir, idle)
	return n, err
}

// start starts a service of a name, which is what makes it a target.
func (n *node) start(ctx context.Context, name string, command []string) error {
	c := exec.CommandContext(ctx, command[0], append(command[1:], fmt.Sprint(n.share))...)
	c.Dir, c.Env = n.dir, append(os.Environ(), "OTEL_SERVICE_NAME="+name)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return err
	}
	n.services = append(n.services, c)
	return nil
}

// wait waits for everything; all of it was killed, so no status says anything.
func (n *node) wait() {
	for _, c := range n.services {
		_ = c.Wait()
	}
	n.idle.Wait()
}

// alive tells whether all services still run.
func (n *node) alive() error {
	var dead []error
	for _, c := range n.services {
		if err := syscall.Kill(c.Process.Pid, 0); err != nil {
			dead = append(dead, fmt.Errorf("%s: %w", c.Path, err))
		}
	}
	return errors.Join(dead...)
}

// cService is a program of its own: with another build-id, it is another file for
// whoever names it and unwinds it.
func (n *node) cService(ctx context.Context, i int) ([]string, error) {
	built, path := filepath.Join(n.dir, "c"), filepath.Join(n.dir, fmt.Sprintf("service-%02d", i))
	if i == 0 {
		if _, err := harness.Run(ctx, "gcc", "-O2", "-fomit-frame-pointer", "-Wl,--build-id=0x"+buildID(0), "-o", built, filepath.Join(testdata, "work.c")); err != nil {
			return nil, err
		}
	}
	return []string{path}, another(built, path, i+1)
}

func (n *node) goService(ctx context.Context, i int) ([]string, error) {
	built, path := filepath.Join(n.dir, "go"), filepath.Join(n.dir, fmt.Sprintf("go-%d", i%goBuilds))
	if i == 0 {
		if _, err := harness.Run(ctx, "go", "build", "-trimpath", "-ldflags", "-B 0x"+buildID(0), "-o", built, "./"+filepath.Join(testdata, "work")); err != nil {
			return nil, err
		}
	}
	if i >= goBuilds {
		return []string{path}, nil
	}
	return []string{path}, another(built, path, i+1)
}

// buildID is the i-th of those that services are built with.
func buildID(i int) string { return strings.Repeat("a7", 18) + fmt.Sprintf("%04x", i) }

// another copies a program that was built with the first build-id, and gives it
// another one: that is much faster than to build it again.
func another(built, path string, i int) error {
	content, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	before, errBefore := hex.DecodeString(buildID(0))
	after, errAfter := hex.DecodeString(buildID(i))
	if err := errors.Join(errBefore, errAfter); err != nil {
		return err
	}
	if bytes.Count(content, before) != 1 {
		return fmt.Errorf("%s does not have its build-id once", built)
	}
	return os.WriteFile(path, bytes.Replace(content, before, after, 1), 0o700)
}

// script copies a script, for its name is its service's.
func (n *node) script(source, interpreter, suffix string) func(context.Context, int) ([]string, error) {
	return func(_ context.Context, i int) ([]string, error) {
		text, err := os.ReadFile(filepath.Join(testdata, source))
		if err != nil {
			return nil, err
		}
		path := filepath.Join(n.dir, fmt.Sprintf("service%02d%s", i, suffix))
		found, err := exec.LookPath(interpreter)
		if err != nil {
			return nil, err
		}
		return []string{found, path}, os.WriteFile(path, text, 0o600)
	}
}

func (n *node) javaService(ctx context.Context, i int) ([]string, error) {
	if i == 0 {
		if _, err := harness.Run(ctx, "javac", "-d", n.dir, filepath.Join(testdata, "Work.java")); err != nil {
			return nil, err
		}
	}
	return []string{"java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", n.dir, "Work"}, nil
}
