package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/test/vacant"
	"atys.dev/atys/test/victims"
)

// program is one that makes and forgets functions, on one runtime.
type program struct {
	runtime runtimes.Runtime
	args    []string
	served  bool // makes functions when it is asked for a page

	seen seen
	lost int64
}

// testdata is where they are: this runs at the top of the tree.
const testdata = "bench/churn/testdata"

// javaModes are ways to lose compiled code and classes: interpreted; classes
// unloaded; compiled early, so that a subclass comes when its parent's callers
// are compiled; with so little room for compiled code that it is thrown out.
var javaModes = []struct {
	name    string
	often   string
	options []string
}{
	{"int", "400", []string{"-Xint"}},
	{"unload", "3000", nil},
	{"deopt", "3000", []string{"-XX:CompileThresholdScaling=0.05"}},
	{"flush", "6000", []string{"-XX:ReservedCodeCacheSize=3m", "-XX:InitialCodeCacheSize=3m", "-XX:-SegmentedCodeCache", "-XX:+UseCodeCacheFlushing", "-XX:CompileThresholdScaling=0.1"}},
}

// prepare lists the programs that are asked for, and compiles what must be.
func prepare(ctx context.Context, dir string) ([]*program, error) {
	all, err := runtimes.All()
	if err != nil {
		return nil, err
	}
	programs := map[string]*program{}
	var names []runtimes.Runtime
	add := func(r runtimes.Runtime, args ...string) *program {
		p := &program{runtime: r, args: args}
		programs[r.Name] = p
		names = append(names, r)
		return p
	}
	for _, r := range all {
		switch r.Family {
		case "java":
			for _, mode := range javaModes {
				options := append([]string{"-Xmx64m", "-XX:MaxMetaspaceSize=64m", "-cp", dir}, mode.options...)
				add(r.With(r.Name+"-"+mode.name, options...), "Churning", mode.often)
			}
		case "python":
			add(r, filepath.Join(testdata, "churning.py"), "churn")
			add(r.With(r.Name+"-exec"), filepath.Join(testdata, "churning.py"), "parent")
		case "node":
			add(r.With(r.Name, "--expose-gc"), filepath.Join(testdata, "churning.js"))
		case "ruby":
			add(r, filepath.Join(testdata, "churning.rb"))
		case "perl":
			add(r, filepath.Join(testdata, "churning.pl"))
		case "php":
			add(r).served = true
		}
	}
	chosen, err := runtimes.Choose(names, *only)
	if err != nil {
		return nil, err
	}
	out := make([]*program, 0, len(chosen))
	for _, r := range chosen {
		out = append(out, programs[r.Name])
	}
	if slices.ContainsFunc(chosen, func(r runtimes.Runtime) bool { return r.Family == "java" }) {
		var java []string
		for _, name := range []string{"Churning", "Made000000", "Late000000"} {
			java = append(java, filepath.Join(testdata, name+".java"))
		}
		_, err = harness.Run(ctx, "javac", append([]string{"--release", "11", "-g", "-d", dir}, java...)...)
	}
	return out, err
}

// start runs a program; it is killed when ctx ends, and wait waits for that.
func (p *program) start(ctx context.Context) (pid int, wait func(), err error) {
	if p.served {
		return p.serve(ctx)
	}
	command := append(p.runtime.Command[:len(p.runtime.Command):len(p.runtime.Command)], p.args...)
	v, err := victims.Start(ctx, command[0], command[1:]...)
	if err != nil {
		return 0, nil, err
	}
	return v.PID, func() { _, _ = v.Wait() }, nil // killed: its status says so
}

// serve runs PHP's web server, and asks it for a page again and again.
func (p *program) serve(ctx context.Context) (pid int, wait func(), err error) {
	address, err := vacant.Address()
	if err != nil {
		return 0, nil, err
	}
	c := exec.CommandContext(ctx, p.runtime.Command[0], "-S", address, filepath.Join(testdata, "churning.php"))
	if err := c.Start(); err != nil {
		return 0, nil, err
	}
	ask := func(n int) error { return get(ctx, fmt.Sprintf("http://%s/?n=%d", address, n)) }
	err = harness.Until(func() error { return ask(0) }) // it listens
	var client sync.WaitGroup
	client.Go(func() {
		for n := 1; ask(n) == nil; n++ {
		}
	})
	return c.Process.Pid, func() {
		client.Wait()
		_ = c.Wait() // killed: its status says so
	}, err
}

// get asks for a page, and fails where the page has anything to say.
func get(ctx context.Context, url string) error {
	text, err := harness.Get(ctx, url)
	if err == nil && len(text) > 0 {
		err = fmt.Errorf("%s says %.200s", url, text)
	}
	return err
}
