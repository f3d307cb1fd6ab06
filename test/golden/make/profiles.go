package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/test/golden"
)

// workload is a program to record, which is called what it is on every machine.
const workload = `import threading, time

def hash_items(until):
    total = 0
    while time.monotonic() < until:
        total += sum(i * i for i in range(500))
    return total

def checkout(until):
    hash_items(until)

until = time.monotonic() + 2.5
threads = [threading.Thread(target=checkout, args=(until,)) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
`

// makeProfiles writes files as "atys record" does of a program that runs here, and
// those of windows of every shape, in all formats that are written.
func makeProfiles(ctx context.Context, dir, atys string) error {
	for _, p := range programs() {
		w := make1(p, "n1", golden.Epoch(), 3)
		if err := format.WriteFile(filepath.Join(dir, p.service+".pb.gz"), format.PProf, w, format.Options{}); err != nil {
			return err
		}
	}
	if err := format.WriteFile(filepath.Join(dir, "machine.pb.gz"), format.PProf, machine("n1", golden.Epoch(), true), format.Options{}); err != nil {
		return err
	}
	atys, err := filepath.Abs(atys)
	if err != nil {
		return err
	}
	script := filepath.Join(dir, "shop.py")
	if err := os.WriteFile(script, []byte(workload), 0o600); err != nil {
		return err
	}
	for name, args := range map[string][]string{"recorded.pb.gz": {"-F", "99"}, "timed.pb.gz": {"-F", "49", "--timed"}, "faults.recorded.pb.gz": {"-e", "page-faults", "-c", "10"}} {
		args = append(append([]string{"record"}, args...), "-o", name, "--", "/usr/bin/python3", "shop.py")
		if err := run(ctx, dir, atys, args...); err != nil {
			return err
		}
	}
	// What else is written is for other programs: atys does not read it.
	for _, of := range []string{"recorded", "shop"} {
		if err := run(ctx, dir, atys, "convert", of+".pb.gz", of+".folded"); err != nil {
			return err
		}
	}
	return os.Remove(script)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return errors.Join(ctx.Err())
}
